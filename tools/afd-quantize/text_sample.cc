// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/text_sample.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "model/json/json_document.h"
#include "proto/failure.h"

namespace afd::tools {
namespace {

// Far more than is needed, some thousand tokens. Each takes a few KiB of disk.
constexpr size_t kTextBytesMax = size_t{1} << 30;

std::string hash_of(std::string_view text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : text) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    }
    return fmt::format("{:016x}", hash);
}

Result<> check(const TextSample& text, const model::ModelConfig& config) {
    if (text.tokens.size() < 2) {
        return invalid_argument(
            "{}: has {} tokens; to measure on it takes at least 2, better some thousand",
            with(text.path, text.tokens.size()));
    }
    if (text.start.size() + 2 > config.context_length) {
        return invalid_argument(
            "{}: prompts of the model begin with {} tokens, and its context holds {}: no room to "
            "measure a text",
            with(text.path, text.start.size(), config.context_length));
    }
    for (const auto* ids : {&text.start, &text.tokens}) {
        const auto beyond = std::ranges::find_if(
            *ids, [&](int32_t id) { return static_cast<uint32_t>(id) >= config.vocab_size; });
        if (beyond == ids->end()) continue;
        return data_loss(
            "{}: the model's tokenizer gives token {} for it, and its config.json says vocab_size "
            "{}; "
            "are they of the same model?",
            with(text.path, *beyond, config.vocab_size));
    }
    return {};
}

}  // namespace

Result<TextSample> TextSample::read(const std::string& path,
                                    model::Tokenizer& tokenizer,
                                    const model::ModelConfig& config) {
    AFD_ASSIGN(const std::string text, model::read_text_file(path, kTextBytesMax));
    const auto ids = tokenizer.encode(text);
    if (!ids.ok()) return Error{ids.error().code, path + ": " + ids.error().message};
    const auto start = tokenizer.prompt_start();
    TextSample sample{.path = path,
                      .hash = hash_of(text),
                      .start = {start.begin(), start.end()},
                      .tokens = {ids.value().begin(), ids.value().end()},
                      .token_bytes = {}};
    for (const uint32_t id : ids.value()) {
        sample.token_bytes.push_back(static_cast<uint32_t>(tokenizer.token_bytes(id).size()));
    }
    AFD_TRY(check(sample, config));
    return sample;
}

}  // namespace afd::tools
