// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/splitter.h"

#include <utility>

namespace afd::model {
namespace {

// Matches for which scratch is kept from one text to the next: ordinary prompts have fewer.
constexpr size_t kKeptMatchesMax = 65536;

// Joins spans of the text, in order, to pieces.
class PieceFolder {
  public:
    PieceFolder(SplitBehavior behavior,
                std::string_view text,
                std::vector<std::string_view>& pieces)
        : behavior_(behavior), text_(text), pieces_(pieces) {}

    void add(size_t begin, size_t end, bool is_match) {
        if (!joins(is_match)) {
            flush();
            begin_ = begin;
        }
        end_ = end;
        was_match_ = is_match;
        is_open_ = true;
    }

    void flush() {
        const bool is_removed = behavior_ == SplitBehavior::kRemoved && was_match_;
        if (is_open_ && end_ > begin_ && !is_removed) {
            pieces_.push_back(text_.substr(begin_, end_ - begin_));
        }
        is_open_ = false;
    }

  private:
    // Whether the next span goes into the open piece.
    bool joins(bool is_match) const {
        if (!is_open_) return false;
        switch (behavior_) {
            case SplitBehavior::kIsolated:
            case SplitBehavior::kRemoved:
                return false;
            case SplitBehavior::kContiguous:
                return is_match == was_match_;
            case SplitBehavior::kMergedWithPrevious:
                return is_match && !was_match_;
            case SplitBehavior::kMergedWithNext:
                return !is_match && was_match_;
        }
        return false;
    }

    SplitBehavior behavior_;
    std::string_view text_;
    std::vector<std::string_view>& pieces_;
    size_t begin_ = 0;
    size_t end_ = 0;
    bool was_match_ = false;
    bool is_open_ = false;
};

}  // namespace

std::optional<SplitBehavior> split_behavior(std::string_view name) {
    if (name == "Isolated") return SplitBehavior::kIsolated;
    if (name == "Removed") return SplitBehavior::kRemoved;
    if (name == "Contiguous") return SplitBehavior::kContiguous;
    if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
    return std::nullopt;
}

Splitter::Splitter(TextPattern pattern, SplitBehavior behavior, bool is_inverted)
    : pattern_(std::move(pattern)), behavior_(behavior), is_inverted_(is_inverted) {}

Result<> Splitter::split(std::string_view piece,
                         std::vector<std::string_view>& pieces,
                         bool is_old) {
    matches_.clear();
    AFD_TRY(pattern_.find_all(piece, matches_, is_old));
    if (behavior_ == SplitBehavior::kIsolated) {
        isolate(piece, pieces);
    } else {
        fold(piece, pieces);
    }
    if (matches_.capacity() > kKeptMatchesMax) std::vector<PatternMatch>().swap(matches_);
    return {};
}

void Splitter::isolate(std::string_view piece, std::vector<std::string_view>& pieces) const {
    size_t done = 0;
    for (const PatternMatch& match : matches_) {
        if (match.begin > done) pieces.push_back(piece.substr(done, match.begin - done));
        if (match.end > match.begin) {
            pieces.push_back(piece.substr(match.begin, match.end - match.begin));
        }
        done = match.end;
    }
    if (done < piece.size()) pieces.push_back(piece.substr(done));
}

void Splitter::fold(std::string_view piece, std::vector<std::string_view>& pieces) const {
    PieceFolder folder(behavior_, piece, pieces);
    size_t done = 0;
    for (const PatternMatch& match : matches_) {
        // An empty match cuts too.
        if (match.begin > done) folder.add(done, match.begin, is_inverted_);
        folder.add(match.begin, match.end, !is_inverted_);
        done = match.end;
    }
    if (done < piece.size()) folder.add(done, piece.size(), is_inverted_);
    folder.flush();
}

}  // namespace afd::model
