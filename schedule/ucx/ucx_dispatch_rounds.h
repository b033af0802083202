// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxDispatchRounds: a session's two-phase rounds over UCX. One that is lost (R17) is refused, so
// that its batch goes through the windows, and acknowledged, so that the next one may begin.

#include <utility>

#include "schedule/ucx/ucx_rounds.h"

namespace afd::schedule {

class UcxDispatchRounds final : public UcxRounds<TwoPhaseSessionWords, TwoPhaseRankWords> {
  public:
    UcxDispatchRounds(UcxEnd& end, uint32_t session, const Geometry& geometry, Words words)
        : UcxRounds(end, session, geometry, std::move(words)) {}

    // An offer to a rank without a connection is lost at once.
    void publish(uint32_t rank, Word word, int32_t value, size_t table_bytes) override;

  private:
    void lose(uint32_t rank) override;
    bool take_word(uint32_t rank,
                   PeerWord word,
                   const TwoPhaseRankWords& line,
                   std::span<const std::byte> table) override;
    void take_answer(uint32_t rank,
                     const TwoPhaseRankWords& line,
                     std::span<const std::byte> table);
};

}  // namespace afd::schedule
