// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is done with a tokenizer that a file described: texts go in and come out again. Oracle: its
// ids are below its size, and at least as many as tokens_min() said.

#include <cstdint>
#include <string>
#include <vector>

#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/check.h"

namespace afd::fuzz {

inline void exercise(model::Tokenizer& tokenizer) {
    for (const std::string text : {"",
                                   "Once upon a time, 1234 times.",
                                   "  a\n\n\tb  ",
                                   "\xc3\xa9\xe4\xb8\xad<|x|>",
                                   "aaaa"}) {
        const auto ids = tokenizer.encode(text);
        if (!ids.ok()) continue;
        AFD_ASSERT(ids.value().size() >= tokenizer.tokens_min(text),
                   "%zu ids, at least %llu were said",
                   ids.value().size(),
                   static_cast<unsigned long long>(tokenizer.tokens_min(text)));
        for (const uint32_t id : ids.value()) {
            AFD_ASSERT(id < tokenizer.size(), "id %u of %u", id, tokenizer.size());
        }
        static_cast<void>(tokenizer.decode(ids.value()));
    }
    // Any ids come out as text, also those that the vocabulary does not have.
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < 32; ++i) ids.push_back(i * 7919 % (tokenizer.size() + 5));
    static_cast<void>(tokenizer.decode(ids));
    model::StreamDecoder stream(tokenizer);
    for (const uint32_t id : ids) static_cast<void>(stream.append(id));
    static_cast<void>(stream.finish());
}

}  // namespace afd::fuzz
