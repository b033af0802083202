// SPDX-License-Identifier: Apache-2.0
#pragma once

// FormatVerdicts: what was found of the last different response formats. Judging one costs up to
// ten milliseconds of the loop; a call for many choices has it as often, and clients, also several
// in turns, send the same ones again and again.

#include <algorithm>
#include <cstddef>
#include <list>
#include <string>
#include <utility>

#include "proto/status.h"

namespace afd::daemon {

class FormatVerdicts {
  public:
    static constexpr size_t kFormatsMax = 64;
    // Of all of them together; the newest stays, however long.
    static constexpr size_t kBytesMax = size_t{4} << 20;

    // The verdict of `judge()` about this format, which is called if it is not known.
    template <typename Judge>
    Result<> of(std::string format, const Judge& judge) {
        const auto known = std::ranges::find(entries_, format, &Entry::format);
        if (known != entries_.end()) {
            entries_.splice(entries_.begin(), entries_, known);
            return entries_.front().verdict;
        }
        num_bytes_ += format.size();
        entries_.push_front({std::move(format), judge()});
        while (entries_.size() > 1 && (entries_.size() > kFormatsMax || num_bytes_ > kBytesMax)) {
            num_bytes_ -= entries_.back().format.size();
            entries_.pop_back();
        }
        return entries_.front().verdict;
    }

  private:
    struct Entry {
        std::string format;
        Result<> verdict;
    };

    std::list<Entry> entries_;  // The one that was asked for last is the first.
    size_t num_bytes_ = 0;
};

}  // namespace afd::daemon
