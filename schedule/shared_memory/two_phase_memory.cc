// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/two_phase_memory.h"

#include "proto/failure.h"

namespace afd::schedule {
namespace {

// Enters the pages now: one system call instead of a fault for each page between the rows.
Result<std::byte*> address_of(const Segment& segment, Segment::Access access) {
    AFD_TRY(segment.prefault(0, segment.size()));
    return access == Segment::Access::kReadWrite ? segment.data()
                                                 : const_cast<std::byte*>(segment.const_data());
}

Segment& part_of(TwoPhaseRoundSegments& segments, TwoPhaseSegment which) {
    return which == TwoPhaseSegment::kReceive ? segments.receive : segments.results;
}

}  // namespace

void HandedTwoPhaseMemory::hand_over(uint32_t rank,
                                     uint32_t session,
                                     int32_t round,
                                     TwoPhaseRoundSegments&& segments) {
    rounds_[{rank, session}] = {round, std::move(segments)};
}

bool HandedTwoPhaseMemory::has_round_of(const TwoPhaseKey& key) const {
    const auto found = rounds_.find({key.rank, key.session});
    return found != rounds_.end() && found->second.number == key.round;
}

Result<std::byte*> HandedTwoPhaseMemory::map(const TwoPhaseKey& key,
                                             uint64_t bytes,
                                             Segment::Access access) {
    if (bytes == 0) return nullptr;
    if (!has_round_of(key)) {
        return not_found("afdd has handed over no memory for round {} of rank {} with session {}",
                         with(key.round, key.rank, key.session));
    }
    const Segment& segment = part_of(rounds_.at({key.rank, key.session}).segments, key.segment);
    if (segment.size() != bytes) {
        return failed_precondition(
            "the {} segment of round {} of rank {} with session {} has {} bytes instead of {}",
            with(key.segment == TwoPhaseSegment::kReceive ? "receive" : "return",
                 key.round,
                 key.rank,
                 key.session,
                 segment.size(),
                 bytes));
    }
    return address_of(segment, access);
}

void HandedTwoPhaseMemory::unmap(const TwoPhaseKey& key) {
    if (!has_round_of(key)) return;
    TwoPhaseRoundSegments& segments = rounds_.at({key.rank, key.session}).segments;
    part_of(segments, key.segment) = {};
    if (segments.receive.size() + segments.results.size() == 0) {
        rounds_.erase({key.rank, key.session});
    }
}

Result<std::byte*> NamedTwoPhaseMemory::map(const TwoPhaseKey& key,
                                            uint64_t bytes,
                                            Segment::Access access) {
    if (bytes == 0) return nullptr;
    const std::string name =
        two_phase_segment_name(prefix_, key.segment, key.rank, key.session, key.round);
    AFD_ASSIGN(Segment segment, Segment::attach(name, bytes, access));
    AFD_ASSIGN(std::byte* const address, address_of(segment, access));
    mapped_[key] = std::move(segment);
    return address;
}

}  // namespace afd::schedule
