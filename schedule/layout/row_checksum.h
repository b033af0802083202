// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row checksums (row_checksums = true): 8 bytes behind what a row holds, in both windows and in the
// segments of two-phase rounds, so that bytes that changed on the way are found and sent again
// instead of being computed with.
//
// Whoever composes a row seals it; whoever takes it looks. An FFN worker whose input was corrupted
// has no way to ask for it again, so it returns its results with a seal that says so: the session
// sends the micro-batch again, as it does when a result itself is corrupted.
//
// XXH3, 64 bits. It finds accidents, not attackers: whoever can store rows can seal them. It does
// not tell a row from an older one that was never overwritten; flags do that (R5).

#include <cstddef>
#include <cstdint>
#include <span>

namespace afd::schedule {

inline constexpr size_t kRowSealBytes = 8;

enum class RowState {
    kIntact,
    kCorrupted,       // These bytes were not sealed so.
    kInputCorrupted,  // Intact, but computed from a row that was not.
};

// Writes the seal of `row` to `place` [kRowSealBytes], aligned in no way.
void seal_row(std::span<const std::byte> row, std::byte* place, bool is_input_intact = true);

// What the seal at `place` says of `row`. `place` may change meanwhile: it is read once.
RowState look_at_row(std::span<const std::byte> row, const std::byte* place);

}  // namespace afd::schedule
