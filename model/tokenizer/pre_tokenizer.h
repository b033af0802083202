// SPDX-License-Identifier: Apache-2.0
#pragma once

// PreTokenizer: the pre_tokenizer of a tokenizer.json: a text (between two added tokens, already
// normalized) -> the pieces that are encoded each on its own. Its steps, in the file's order, work
// on every piece that the steps before have made:
//
//   Split, Digits, Punctuation   cut (splitter.h)
//   Metaspace                    writes a sign for the blank, often puts one in front, and cuts
//                                before each
//   ByteLevel                    may put a blank in front, may cut as GPT-2 does; says that the
//                                vocabulary is written in bytes (byte_alphabet.h), so it is last
//
// Metaspace with prepend_scheme "first" only puts its sign in front of the piece that the whole
// text begins with.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer/splitter.h"
#include "model/tokenizer/whole_pieces.h"
#include "proto/status.h"

namespace afd::model {

class PreTokenizer {
  public:
    // Null gives no steps. Errors: kUnimplemented and kDataLoss naming the key.
    static Result<PreTokenizer> parse(const nlohmann::json& json, const std::string& origin);

    // The pieces of `text`; none is empty. They are views of `text` or of memory that stays as it
    // is until the next call. `begins_prompt`: nothing comes before `text`.
    // REQUIRES: valid UTF-8. Errors: as TextPattern::find_all.
    Result<> cut(std::string_view text, bool begins_prompt, std::vector<std::string_view>& pieces);

    // Gives back what a long text took; the pieces of the last cut() are gone.
    void trim();

    bool is_byte_level() const { return is_byte_level_; }

    // Every byte of the text is in a piece, as it was, and nothing is added.
    bool keeps_text() const;
    // No byte of the text is lost, but other bytes may stand for it or beside it.
    bool keeps_all() const;

  private:
    // Writes `sign` for every blank (if `replaces`) and puts one in front of pieces.
    struct Prefix {
        enum class Where { kNever, kFirst, kAlways };
        std::string sign;
        bool replaces = false;
        Where where = Where::kNever;
    };
    using Step = std::variant<Splitter, Prefix>;

    Result<> read(const nlohmann::json& json, const std::string& origin);
    Result<> read_split(const nlohmann::json& json, const std::string& origin);
    Result<> read_digits(const nlohmann::json& json, const std::string& origin);
    Result<> read_punctuation(const nlohmann::json& json, const std::string& origin);
    Result<> read_metaspace(const nlohmann::json& json, const std::string& origin);
    Result<> read_byte_level(const nlohmann::json& json, const std::string& origin);
    Result<> add_split(const std::string& expression,
                       SplitBehavior behavior,
                       bool is_inverted,
                       const std::string& origin);
    size_t first_nested_step() const;

    // What holds for the pieces on their way through the steps.
    struct Known {
        bool begins_prompt;  // The first of them is what the prompt begins with.
        bool is_old;         // None has new characters (new_characters.h).
    };
    Result<> run_on_all(Step& step, Known& known, std::vector<std::string_view>& pieces);
    void write_prefixes(const Prefix& prefix,
                        bool begins_prompt,
                        std::vector<std::string_view>& pieces);
    Result<> cut_nested(bool is_old, std::vector<std::string_view>& pieces);
    Result<> cut_piece(size_t step,
                       std::string_view piece,
                       bool is_old,
                       std::vector<std::string_view>& pieces);

    std::vector<Step> steps_;
    // A Prefix looks at all pieces, so each step up to the last one takes all of them. The splits
    // behind, from this step on, take one piece after the other.
    size_t first_nested_ = 0;
    bool is_byte_level_ = false;
    std::vector<std::string_view> pieces_;  // Scratch.
    // Scratch of each step, for what it makes of one piece.
    std::vector<std::vector<std::string_view>> cuts_;
    WholePieces whole_pieces_;
    std::string text_;       // What the last Prefix wrote.
    std::string next_text_;  // Scratch.
};

}  // namespace afd::model
