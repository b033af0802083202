// SPDX-License-Identifier: Apache-2.0
#pragma once

// RoundArrows: puts the two ends of each hop together. The events of a round come from several
// workers, in any order; each hop becomes an arrow as soon as both of its ends are known.

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "proto/client.pb.h"

namespace afd::client {

// From a moment of one lane to a moment of another; a lane is a process here.
struct RoundArrow {
    struct End {
        uint32_t process = 0;
        uint64_t ns = 0;  // Within the slice that the arrow is tied to.
    };
    End from;
    End to;
    bool is_to_experts = false;
};

class RoundArrows {
  public:
    // The arrows of which the event is the second end. Events of no round have none.
    std::vector<RoundArrow> add(const TraceEvent& event, uint32_t process);

  private:
    using Round = std::tuple<uint32_t, uint32_t, int32_t>;  // Session, micro-batch, number.
    struct Ends {
        std::optional<RoundArrow::End> dispatch;
        std::optional<RoundArrow::End> combine;
        std::vector<RoundArrow::End> gathers;  // That wait for the dispatch.
        std::vector<RoundArrow::End> returns;  // That wait for the combine.
    };

    void forget_old();

    std::map<Round, Ends> rounds_;
    uint64_t newest_ns_ = 0;
    uint64_t swept_ns_ = 0;
};

}  // namespace afd::client
