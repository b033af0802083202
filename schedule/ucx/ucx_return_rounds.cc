// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_return_rounds.h"

#include "schedule/layout/round.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

void UcxReturnRounds::publish(uint32_t session, Word word, int32_t value, size_t table_bytes) {
    const UcxWorker::Lock held = end().lock();
    publish_seq_cst(own(session).*word, value);
    if (!is_lost(session)) send_words(session, word, own(session), table_bytes);
}

void UcxReturnRounds::lose(uint32_t session) {
    TwoPhaseSessionWords& words = mirror(session);
    set_lost(session, true);
    publish_seq_cst(words.closed, observe_own(words.offer));
    end().ring_own();
}

bool UcxReturnRounds::take_word(uint32_t session,
                                PeerWord word,
                                const TwoPhaseSessionWords& line,
                                std::span<const std::byte> table) {
    if (word == &TwoPhaseSessionWords::offer) {
        // Each may be refused, which is sent: who reads no answers gets none for ever.
        if (line.offer < 1 || num_unsent_words(session) > kUnsentWordsMax) return false;
        take_offer(session, line, table);
        return true;
    }
    TwoPhaseSessionWords& words = mirror(session);
    // Of a round that was refused, or is lost: late.
    if (is_lost(session) || line.offer != observe_own(words.offer)) return true;
    publish_seq_cst(words.*word, line.*word);
    end().ring_own();
    return true;
}

void UcxReturnRounds::take_offer(uint32_t session,
                                 const TwoPhaseSessionWords& line,
                                 std::span<const std::byte> table) {
    TwoPhaseSessionWords& words = mirror(session);
    // Acquire; partner: publish(). What the data thread read of the last offer it has read.
    const int32_t acknowledged = observe(own(session).acknowledged, Order::kAcquire);
    const bool stands =
        line.offer == acknowledged || carries_round(observe_own(own(session).granted), line.offer);
    if (observe_own(words.offer) != acknowledged || stands) return refuse(session, line.offer);
    set_lost(session, false);
    store_table(session, table);
    publish_release(words.sent, 0);
    publish_release(words.combined, 0);
    publish_release(words.closed, 0);
    publish_release(words.layer_id, line.layer_id);
    publish_release(words.num_blocks, line.num_blocks);
    publish_release(words.block_rows_max, line.block_rows_max);
    publish_seq_cst(words.offer, line.offer);
    end().ring_own();
}

// Not by way of the data thread, which has another round or none.
void UcxReturnRounds::refuse(uint32_t session, int32_t round) {
    TwoPhaseRankWords line{};
    line.granted = refused_mark(round);
    send_words(session, &TwoPhaseRankWords::granted, line, 0);
    line.acknowledged = round;
    send_words(session, &TwoPhaseRankWords::acknowledged, line, 0);
}

}  // namespace afd::schedule
