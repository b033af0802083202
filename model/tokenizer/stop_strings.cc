// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/stop_strings.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace afd::model {

StopStrings::StopStrings(std::vector<std::string> strings, bool keeps_match)
    : keeps_match_(keeps_match) {
    for (std::string& string : strings) {
        AFD_ASSERT(!string.empty(), "stop string %zu is empty", patterns_.size());
        Pattern pattern{std::move(string), {0}, 0};
        for (size_t i = 1; i < pattern.string.size(); ++i) {
            advance(pattern, pattern.string[i]);
            pattern.fallback.push_back(pattern.num_matched);
        }
        pattern.num_matched = 0;
        patterns_.push_back(std::move(pattern));
    }
}

void StopStrings::advance(Pattern& pattern, char byte) {
    size_t& num_matched = pattern.num_matched;
    while (num_matched > 0 && pattern.string[num_matched] != byte) {
        num_matched = pattern.fallback[num_matched - 1];
    }
    if (pattern.string[num_matched] == byte) ++num_matched;
}

std::string StopStrings::take(std::string_view text, bool may_match) {
    std::string certain;
    if (match_) return certain;
    for (const char byte : text) {
        held_ += byte;
        size_t num_held = 0;
        for (Pattern& pattern : patterns_) {
            advance(pattern, byte);
            const bool is_complete = pattern.num_matched == pattern.string.size();
            if (is_complete && !may_match) pattern.num_matched = pattern.fallback.back();
            num_held = std::max(num_held, pattern.num_matched);
            if (is_complete && may_match && (!match_ || pattern.string.size() > match_->size())) {
                match_ = pattern.string;
            }
        }
        if (match_) {
            const size_t num_dropped = keeps_match_ ? 0 : match_->size();
            certain.append(held_, 0, held_.size() - num_dropped);
            held_.clear();
            return certain;
        }
        certain.append(held_, 0, held_.size() - num_held);
        held_.erase(0, held_.size() - num_held);
    }
    return certain;
}

std::string StopStrings::finish() {
    return std::exchange(held_, {});
}

}  // namespace afd::model
