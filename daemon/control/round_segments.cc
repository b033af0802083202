// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/round_segments.h"

#include "proto/check.h"
#include "schedule/layout/two_phase_control.h"

namespace afd::daemon {

size_t num_round_fds(const control::SegmentAnswer& answer) {
    return size_t{answer.receive_bytes() > 0} + size_t{answer.return_bytes() > 0};
}

Result<schedule::TwoPhaseRoundSegments> map_round_segments(std::span<const UniqueFd> fds,
                                                           control::Role role,
                                                           const std::string& prefix,
                                                           const control::SegmentAnswer& answer) {
    AFD_ASSERT(fds.size() == num_round_fds(answer), "%zu descriptors", fds.size());
    const bool is_session = role == control::ATTENTION;
    size_t next = 0;
    const auto map = [&](schedule::TwoPhaseSegment which,
                         uint64_t bytes,
                         bool is_writer) -> Result<schedule::Segment> {
        using enum schedule::Segment::Access;
        if (bytes == 0) return schedule::Segment();
        return schedule::Segment::attach(
            fds[next++].get(),
            schedule::two_phase_segment_name(
                prefix, which, answer.rank(), answer.session(), answer.round()),
            bytes,
            is_writer ? kReadWrite : kReadOnly);
    };
    schedule::TwoPhaseRoundSegments segments;
    AFD_ASSIGN(segments.receive,
               map(schedule::TwoPhaseSegment::kReceive, answer.receive_bytes(), is_session));
    AFD_ASSIGN(segments.results,
               map(schedule::TwoPhaseSegment::kReturn, answer.return_bytes(), !is_session));
    return segments;
}

}  // namespace afd::daemon
