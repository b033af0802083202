// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxReturnRounds: a rank's two-phase rounds over UCX. One that is lost (R17) is closed, so that
// its memory goes back. An offer is refused while the rank has not let go of the round before,
// whose words it may be reading; and if its number stands in the rank's own words, where another
// process of the session has left it.

#include <utility>

#include "schedule/ucx/ucx_rounds.h"

namespace afd::schedule {

class UcxReturnRounds final : public UcxRounds<TwoPhaseRankWords, TwoPhaseSessionWords> {
  public:
    UcxReturnRounds(UcxEnd& end, uint32_t rank, const Geometry& geometry, Words words)
        : UcxRounds(end, rank, geometry, std::move(words)) {}

    void publish(uint32_t session, Word word, int32_t value, size_t table_bytes) override;

  private:
    static constexpr size_t kUnsentWordsMax = 64;

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
