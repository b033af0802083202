// SPDX-License-Identifier: Apache-2.0
#pragma once

// Normalizer: the normalizer of a tokenizer.json: what is done to a text before it is cut into
// pieces: the Unicode forms NFC, NFD, NFKC and NFKD, Lowercase, Prepend, Replace, and Sequences of
// them. Time is linear in the text, but for n log n in a run of combining marks.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/unicode/text_pattern.h"
#include "proto/status.h"

namespace afd::model {

class Normalizer {
  public:
    // Null gives no steps. Errors: kUnimplemented and kDataLoss naming the key.
    static Result<Normalizer> parse(const nlohmann::json& json, const std::string& origin);

    // REQUIRES: valid UTF-8, which the result is too. Errors: as TextPattern::replaced with
    // replaced_bytes_max().
    Result<std::string> normalized(std::string_view text);

    bool is_empty() const { return steps_.empty(); }

    // A byte of the result stands for at most so many bytes of the text; 0: there is no such bound.
    uint64_t shrinks_by_at_most() const { return shrinks_by_; }

  private:
    enum class Form { kNfc, kNfd, kNfkc, kNfkd };
    struct Lowercase {};
    struct Prepend {
        std::string text;
    };
    struct Replace {
        TextPattern pattern;
        std::string content;
    };
    using Step = std::variant<Form, Lowercase, Prepend, Replace>;

    Result<> read(const nlohmann::json& json, const std::string& origin);
    Result<> read_replace(const nlohmann::json& json, const std::string& origin);
    void shrink(uint64_t by);
    static Result<> run(Step& step, size_t bytes_max, std::string& text);

    std::vector<Step> steps_;
    uint64_t shrinks_by_ = 1;
};

}  // namespace afd::model
