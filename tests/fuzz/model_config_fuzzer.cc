// SPDX-License-Identifier: Apache-2.0
//
// config.json and generation_config.json. Input: both texts. Oracle: token ids that are accepted
// are in the vocabulary.

#include "model/checkpoint/generation_config.h"
#include "model/family/config_file.h"
#include "proto/check.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto [text, generation_text] =
        afd::fuzz::two_texts({reinterpret_cast<const char*>(data), size});
    const auto config = afd::model::parse_model_config(text, "config.json");
    if (!config.ok()) return 0;
    const auto generation = afd::model::parse_generation_config(
        generation_text, config.value(), "generation_config.json");
    if (!generation.ok()) return 0;
    for (const uint32_t id : generation.value().eos_token_ids) {
        AFD_ASSERT(id < config.value().vocab_size,
                   "id %u of a vocabulary of %u",
                   id,
                   config.value().vocab_size);
    }
    return 0;
}
