// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxReturnRounds: a rank's two-phase rounds over UCX. One that is lost (R17) is closed, so that
// its memory goes back. Until the rank has let go of it, and if its number is that of the last one,
// an offer is refused: the words that are being read stay, and every round has another number.

#include "schedule/ucx/ucx_rounds.h"

namespace afd::schedule {

class UcxReturnRounds final : public UcxRounds<TwoPhaseRankWords, TwoPhaseSessionWords> {
  public:
    UcxReturnRounds(UcxEnd& end, uint32_t rank, const Geometry& geometry)
        : UcxRounds(end, rank, geometry) {}

    void publish(uint32_t session, Word word, int32_t value, size_t table_bytes) override;

  private:
    void lose(uint32_t session) override;
    bool take_word(uint32_t session,
                   PeerWord word,
                   const TwoPhaseSessionWords& line,
                   std::span<const std::byte> table) override;
    void take_offer(uint32_t session,
                    const TwoPhaseSessionWords& line,
                    std::span<const std::byte> table);
    void refuse(uint32_t session, int32_t round);
};

}  // namespace afd::schedule
