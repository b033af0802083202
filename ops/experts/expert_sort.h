// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stable counting sort of slots by expert key: the permute step of FfnWorkerBatching and of the
// grouped experts.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/experts/grouped_ffn.h"
#include "ops/tensor/parallel.h"

namespace afd::ops {

struct ExpertSort {
    size_t num_rows = 0;    // Slots with a key.
    size_t num_groups = 0;  // Distinct keys.
};

// Sorts the indices of `keys` ascending by key, equal keys by index; a negative key is left out.
// Writes order [num_rows] and the groups [num_groups], keys ascending.
// `next` is scratch of num_keys elements; order and groups have room for keys.size() and
// min(keys.size(), num_keys) elements. REQUIRES: keys below num_keys.
ExpertSort sort_by_expert(std::span<const int32_t> keys,
                          size_t num_keys,
                          int32_t* next,
                          int32_t* order,
                          ExpertGroup* groups);

// Elements of the parallel form's scratch; enough for fewer slots and fewer keys, too.
size_t expert_sort_scratch(size_t num_slots, size_t num_keys);

// The same result, computed by several threads. Also writes position [keys.size()], the inverse of
// order and -1 for a slot without a key, unless it is null. `scratch` has
// expert_sort_scratch(keys.size(), num_keys) elements.
ExpertSort sort_by_expert(std::span<const int32_t> keys,
                          size_t num_keys,
                          int32_t* scratch,
                          int32_t* order,
                          int32_t* position,
                          ExpertGroup* groups,
                          Parallel& parallel);

}  // namespace afd::ops
