// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a tile fetches while it multiplies: the lines of weights (and rows) that it or the next one
// will load. Distances are those of FetchAhead (ops/cpu/product_arguments.h). Included by the
// kernel files only.

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kLineBytes = 64;

// Which weights a tile fetches: its own to the first-level cache; to that alone, so that what the
// second-level one holds, rows and their sums, survives the stream of weights; its own to the
// second-level one, since the first one has room for little, and from there once more just ahead of
// their use; or those of the next panel.
enum class Fetch { kNear, kNearAlone, kFarThenNear, kNext };

// The last step of kFarThenNear, in bytes.
constexpr size_t kFetchNear = 1024;

inline void fetch_to_first_level(uintptr_t at) {
    __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 3);
}
inline void fetch_to_second_level(uintptr_t at) {
    __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
}

// The fetch of one line of a tile's own weights, from the line in use.
template <Fetch kFetch>
inline void fetch_own_line(const void* at, size_t ahead) {
    constexpr int kLocality = kFetch == Fetch::kNear ? 3 : kFetch == Fetch::kNearAlone ? 0 : 2;
    __builtin_prefetch(static_cast<const char*>(at) + ahead, 0, kLocality);
    if constexpr (kFetch == Fetch::kFarThenNear) {
        __builtin_prefetch(static_cast<const char*>(at) + kFetchNear, 0, 3);
    }
}

// The fetches of one step of depth, whose weights are the two lines at `at`.
template <Fetch kFetch>
inline void fetch_weights(const void* at, size_t ahead, uintptr_t& next, size_t next_step) {
    if constexpr (kFetch == Fetch::kNext) {
        fetch_to_second_level(next);
        next += next_step;
    } else {
        fetch_own_line<kFetch>(at, ahead);
        fetch_own_line<kFetch>(static_cast<const char*>(at) + kLineBytes, ahead);
    }
}

// Calls body.template operator()<fetch>() with what the arguments of a tile ask for. kNear: kNear
// or kNearAlone.
template <Fetch kNear = Fetch::kNear, typename Arguments, typename Body>
[[gnu::always_inline]] inline void with_fetch(const Arguments& a, const Body& body) {
    if (a.fetch_next.from != nullptr) return body.template operator()<Fetch::kNext>();
    if (a.fetch_ahead.is_far) return body.template operator()<Fetch::kFarThenNear>();
    return body.template operator()<kNear>();
}

}  // namespace
}  // namespace afd::ops::cpu
