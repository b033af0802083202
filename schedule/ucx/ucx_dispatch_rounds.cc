// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_dispatch_rounds.h"

#include "schedule/layout/round.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

void UcxDispatchRounds::publish(uint32_t rank, Word word, int32_t value, size_t table_bytes) {
    const UcxWorker::Lock held = end().lock();
    publish_seq_cst(own(rank).*word, value);
    if (word == &TwoPhaseSessionWords::offer) {
        set_lost(rank, false);
        if (!end().is_open(rank)) lose(rank);
    }
    if (!is_lost(rank)) send_words(rank, word, own(rank), table_bytes);
}

void UcxDispatchRounds::lose(uint32_t rank) {
    TwoPhaseRankWords& words = mirror(rank);
    const int32_t offer = observe_own(own(rank).offer);
    if (is_lost(rank) || offer == observe_own(words.acknowledged)) return;
    set_lost(rank, true);
    publish_seq_cst(words.granted, refused_mark(offer));
    publish_seq_cst(words.acknowledged, offer);
    end().ring_own();
}

bool UcxDispatchRounds::take_word(uint32_t rank,
                                  PeerWord word,
                                  const TwoPhaseRankWords& line,
                                  std::span<const std::byte> table) {
    const int32_t offer = observe_own(own(rank).offer);
    TwoPhaseRankWords& words = mirror(rank);
    // What is of a lost round, or of another than the one offered, is late.
    if (is_lost(rank)) return true;
    if (word == &TwoPhaseRankWords::granted) {
        if (carries_round(line.granted, offer)) take_answer(rank, line, table);
    } else if (word == &TwoPhaseRankWords::returned) {
        if (line.granted == offer) publish_seq_cst(words.returned, line.returned);
    } else if (line.acknowledged == offer) {
        // Before its end only a rank that lies says so. Believed, it would not be lost any more.
        const bool is_over = observe_own(own(rank).closed) == offer ||
                             observe_own(words.granted) == refused_mark(offer);
        if (!is_over) return false;
        publish_seq_cst(words.acknowledged, offer);
    }
    end().ring_own();
    return true;
}

void UcxDispatchRounds::take_answer(uint32_t rank,
                                    const TwoPhaseRankWords& line,
                                    std::span<const std::byte> table) {
    TwoPhaseRankWords& words = mirror(rank);
    const int32_t before = observe_own(words.granted);
    // What was granted may be being read, and what was refused stays so.
    if (carries_round(before, line.granted) && line.granted > 0) return;
    if (line.granted > 0) {
        store_table(rank, table);
        publish_release(words.returned, 0);
    }
    publish_seq_cst(words.granted, line.granted);
}

}  // namespace afd::schedule
