// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/round_arrows.h"

#include <algorithm>
#include <string>

namespace afd::client {
namespace {

// Workers are read a hundred times a second: what is older than this has met its other end, or
// lies across the trace's edge.
constexpr uint64_t kForgetNs = 5'000'000'000;

}  // namespace

std::vector<RoundArrow> RoundArrows::add(const TraceEvent& event, uint32_t process) {
    std::vector<RoundArrow> arrows;
    if (event.round() == 0) return arrows;
    const std::string& name = event.name();
    const RoundArrow::End first{process, event.start_ns()};
    // The last moment that is still of the slice.
    const uint64_t duration_ns = std::max<uint64_t>(event.duration_ns(), 1);
    const RoundArrow::End last{process, event.start_ns() + duration_ns - 1};
    newest_ns_ = std::max(newest_ns_, last.ns);
    forget_old();
    Ends& ends = rounds_[{event.session(), event.micro_batch(), event.round()}];
    if (name == "dispatch") {
        ends.dispatch = last;
        for (const RoundArrow::End& to : ends.gathers) arrows.push_back({last, to, true});
        ends.gathers.clear();
    } else if (name == "gather") {
        if (ends.dispatch) {
            arrows.push_back({*ends.dispatch, first, true});
        } else {
            ends.gathers.push_back(first);
        }
    } else if (name == "return") {
        if (ends.combine) {
            arrows.push_back({last, *ends.combine, false});
        } else {
            ends.returns.push_back(last);
        }
    } else if (name == "combine") {
        ends.combine = first;
        for (const RoundArrow::End& from : ends.returns) arrows.push_back({from, first, false});
        ends.returns.clear();
    }
    return arrows;
}

void RoundArrows::forget_old() {
    if (newest_ns_ - swept_ns_ < kForgetNs) return;
    swept_ns_ = newest_ns_;
    std::erase_if(rounds_, [&](const auto& entry) {
        const Ends& ends = entry.second;
        uint64_t newest = 0;
        for (const auto* end : {&ends.dispatch, &ends.combine}) {
            if (*end) newest = std::max(newest, (*end)->ns);
        }
        for (const auto* some : {&ends.gathers, &ends.returns}) {
            for (const RoundArrow::End& end : *some) newest = std::max(newest, end.ns);
        }
        return newest + kForgetNs < newest_ns_;
    });
}

}  // namespace afd::client
