// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_phase_memory.h"

namespace afd::schedule {

Result<std::byte*> ShmTwoPhaseMemory::map(const TwoPhaseKey& key,
                                          uint64_t bytes,
                                          Segment::Access access) {
    // A round without rows for this rank has no return segment.
    if (bytes == 0) return nullptr;
    const std::string name =
        two_phase_segment_name(prefix_, key.segment, key.rank, key.session, key.round);
    AFD_ASSIGN(Segment segment, Segment::attach(name, bytes, access));
    AFD_TRY(segment.prefault(0, bytes));
    std::byte* address = access == Segment::Access::kReadWrite
                             ? segment.data()
                             : const_cast<std::byte*>(segment.const_data());
    mapped_[key] = std::move(segment);
    return address;
}

Result<TwoPhaseAreas> TwoPhaseAreas::attach(const AttachConfig& config, Role role, uint32_t index) {
    const Geometry& geometry = config.layout.geometry;
    const bool is_ffn = role == Role::kFfn;
    TwoPhaseAreas areas;
    areas.layout = TwoPhaseControlLayout::compute(geometry);
    const auto bytes_of = [&](Role owner) {
        return owner == Role::kFfn ? areas.layout.rank_bytes() : areas.layout.session_bytes();
    };
    const auto attach_one = [&](Role owner, uint32_t i, Segment::Access access) -> Result<Segment> {
        const std::string name = segment_name(config.prefix, owner, i, SegmentKind::kTwoPhase);
        AFD_ASSIGN(Segment segment, Segment::attach(name, bytes_of(owner), access));
        AFD_TRY(segment.prefault(0, segment.size()));
        return segment;
    };
    AFD_ASSIGN(areas.own, attach_one(role, index, Segment::Access::kReadWrite));
    const Role peer = is_ffn ? Role::kAttention : Role::kFfn;
    const uint32_t num_peers = is_ffn ? geometry.num_sessions : geometry.num_ffn_workers;
    for (uint32_t i = 0; i < num_peers; ++i) {
        AFD_ASSIGN(Segment segment, attach_one(peer, i, Segment::Access::kReadOnly));
        areas.peers.push_back(std::move(segment));
    }
    return areas;
}

std::vector<const std::byte*> TwoPhaseAreas::peer_areas() const {
    std::vector<const std::byte*> areas;
    for (const Segment& peer : peers) areas.push_back(peer.const_data());
    return areas;
}

}  // namespace afd::schedule
