// SPDX-License-Identifier: Apache-2.0
#pragma once

// MergeTable: what two neighbouring tokens become. Encoding asks it for every pair that it sees, so
// it is one array with open addressing: an answer is one line of memory.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace afd::model {

class MergeTable {
  public:
    struct Merge {
        uint32_t rank;
        uint32_t id;
    };

    // The last one given for a pair counts.
    void set(uint32_t left, uint32_t right, Merge merge) {
        if (2 * (num_entries_ + 1) > entries_.size()) grow();
        Entry& entry = entries_[place_of(left, right)];
        num_entries_ += entry.is_used ? 0 : 1;
        entry = {left, right, merge, true};
    }

    // Null: they do not merge.
    const Merge* find(uint32_t left, uint32_t right) const {
        if (entries_.empty()) return nullptr;
        const Entry& entry = entries_[place_of(left, right)];
        return entry.is_used ? &entry.merge : nullptr;
    }

  private:
    struct Entry {
        uint32_t left = 0;
        uint32_t right = 0;
        Merge merge = {};
        bool is_used = false;
    };

    // Of the pair, or of the free place that it would take.
    size_t place_of(uint32_t left, uint32_t right) const {
        // Multiplicative hashing; the constant is 2^64 divided by the golden ratio.
        const uint64_t hash = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15U;
        const size_t mask = entries_.size() - 1;
        size_t place = (hash >> 32) & mask;
        while (entries_[place].is_used &&
               (entries_[place].left != left || entries_[place].right != right)) {
            place = (place + 1) & mask;
        }
        return place;
    }

    void grow() {
        std::vector<Entry> old(entries_.empty() ? 64 : 2 * entries_.size());
        old.swap(entries_);
        for (const Entry& entry : old) {
            if (entry.is_used) entries_[place_of(entry.left, entry.right)] = entry;
        }
    }

    std::vector<Entry> entries_;  // A power of two of them, at most half in use.
    size_t num_entries_ = 0;
};

}  // namespace afd::model
