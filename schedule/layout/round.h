// SPDX-License-Identifier: Apache-2.0
#pragma once

// Round numbers of a (session, micro-batch) lane: R1 of the flag protocol, whose rules R1 ... R17
// stand in docs/protocol.md. Pure.
//
// A descriptor's flag is 0 (never used) or a round number in [1, 2^31 - 1]; after the last comes
// 1 again, so numbers are compared for equality only, never for order (but for memory that is given
// back: TwoPhaseSegments::release()). A result flag is 0, the
// round it belongs to, or minus that round: the FFN worker refused the descriptor (R11). So is an
// acknowledgement; minus the round, if the refusal could not be told in result flags.

#include <cstddef>
#include <cstdint>
#include <limits>

namespace afd::schedule {

inline constexpr int32_t kRoundMax = std::numeric_limits<int32_t>::max();

// The number after `round`; 1 after the last and after any value that is no round number.
constexpr int32_t next_round(int32_t round) {
    return round < 1 || round == kRoundMax ? 1 : round + 1;
}

// The mark that takes the place of a round where a refused descriptor's would stand.
constexpr int32_t refused_mark(int32_t round) {
    // Unsigned: the word may be a peer's, and to negate the smallest number would overflow.
    return static_cast<int32_t>(0U - static_cast<uint32_t>(round));
}

// Whether a standing flag or acknowledgement, as a round or as a refusal, belongs to `round`.
constexpr bool carries_round(int32_t word, int32_t round) {
    return word == round || word == refused_mark(round);
}

// The round that a flag or acknowledgement belongs to.
constexpr int32_t round_of(int32_t word) {
    return word < 0 && word >= -kRoundMax ? -word : word;
}

// Chooses the number of a lane's next round: the first after `previous` that stands in none of the
// `num_words` words of the round. `stands(round)` says whether any descriptor or result slot that
// the round uses carries it; these words must be still (R4, R10).
// Cost: one call of `stands` unless a number is taken; at most num_words calls. A peer whose
// words are not still might take each number before it is asked for, and gets one that it took.
template <typename Stands>
int32_t choose_round(int32_t previous, size_t num_words, Stands&& stands) {
    int32_t round = next_round(previous);
    for (size_t i = 0; i < num_words && stands(round); ++i) round = next_round(round);
    return round;
}

}  // namespace afd::schedule
