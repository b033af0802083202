// SPDX-License-Identifier: Apache-2.0
//
// tiktoken.model and tokenizer_config.json. Input: both texts.

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/tokenizer_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto [text, config] = afd::fuzz::two_texts({reinterpret_cast<const char*>(data), size});
    auto tokenizer = afd::model::Tokenizer::parse_tiktoken(text, config, "tiktoken.model");
    if (tokenizer.ok()) afd::fuzz::exercise(tokenizer.value());
    return 0;
}
