// SPDX-License-Identifier: Apache-2.0

#include "ops/expert_sort.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::ops {

ExpertSort sort_by_expert(std::span<const int32_t> keys,
                          size_t num_keys,
                          int32_t* next,
                          int32_t* order,
                          ExpertGroup* groups) {
    std::fill_n(next, num_keys, 0);
    for (const int32_t key : keys) {
        if (key < 0) continue;
        AFD_DASSERT(static_cast<size_t>(key) < num_keys, "key %d of %zu", key, num_keys);
        ++next[key];
    }
    ExpertSort sorted;
    int32_t start = 0;
    for (size_t key = 0; key < num_keys; ++key) {
        const int32_t count = next[key];
        if (count == 0) continue;
        groups[sorted.num_groups++] = {.key = static_cast<int64_t>(key), .count = count};
        next[key] = start;
        start += count;
    }
    sorted.num_rows = static_cast<size_t>(start);
    for (size_t index = 0; index < keys.size(); ++index) {
        if (keys[index] >= 0) order[next[keys[index]]++] = static_cast<int32_t>(index);
    }
    return sorted;
}

}  // namespace afd::ops
