// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/shm_two_phase.h"

#include <type_traits>
#include <utility>

#include "proto/check.h"
#include "schedule/layout/segment_header.h"

namespace afd::schedule {
namespace {

using enum Segment::Access;

template <typename Words>
constexpr bool kIsSession = std::is_same_v<Words, TwoPhaseSessionWords>;

template <typename Words>
constexpr Role kRoleOf = kIsSession<Words> ? Role::kAttention : Role::kFfn;

template <typename Words>
uint32_t num_writers(const TwoPhaseControlLayout& layout) {
    return kIsSession<Words> ? layout.num_sessions : layout.num_ranks;
}

// The stripe that the owner of an area has for its peer with this index.
template <typename Words, typename Byte>
auto* words_at(const TwoPhaseControlLayout& layout, Byte* area, uint32_t peer) {
    const uint64_t stripe_bytes =
        kIsSession<Words> ? layout.session_stripe_bytes : layout.rank_stripe_bytes;
    using Result = std::conditional_t<std::is_const_v<Byte>, const Words, Words>;
    // Through void, since the area is bytes and the words are aligned by the layout: stripes are
    // whole lines.
    using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;
    return static_cast<Result*>(static_cast<Void*>(area + peer * stripe_bytes));
}

template <typename Own, typename Peer>
std::vector<Own*> own_words(const TwoPhaseControlLayout& layout, std::byte* area) {
    std::vector<Own*> words;
    for (uint32_t peer = 0; peer < num_writers<Peer>(layout); ++peer) {
        words.push_back(words_at<Own>(layout, area, peer));
    }
    return words;
}

template <typename Peer>
std::vector<const Peer*> peer_words(const TwoPhaseControlLayout& layout,
                                    const std::vector<const std::byte*>& areas,
                                    uint32_t index) {
    std::vector<const Peer*> words;
    for (const std::byte* area : areas) words.push_back(words_at<Peer>(layout, area, index));
    return words;
}

template <typename Owner>
Result<Segment> attach_area(const AttachConfig& config,
                            const TwoPhaseControlLayout& layout,
                            uint32_t index,
                            Segment::Access access) {
    const uint64_t bytes = kIsSession<Owner> ? layout.session_bytes() : layout.rank_bytes();
    AFD_ASSIGN(
        Segment area,
        config.attach(segment_name(config.prefix, kRoleOf<Owner>, index, SegmentKind::kTwoPhase),
                      bytes,
                      access));
    AFD_TRY(area.prefault(0, area.size()));
    return area;
}

}  // namespace

template <typename Own, typename Peer>
auto ShmTwoPhase<Own, Peer>::attach(const AttachConfig& config,
                                    uint32_t index,
                                    std::vector<DoorbellRinger> ringers)
    -> Result<std::unique_ptr<ShmTwoPhase>> {
    const auto layout = TwoPhaseControlLayout::compute(config.layout.geometry);
    AFD_ASSIGN(Segment own, attach_area<Own>(config, layout, index, kReadWrite));
    std::vector<const std::byte*> areas;
    std::vector<Segment> segments;
    for (uint32_t peer = 0; peer < num_writers<Peer>(layout); ++peer) {
        AFD_ASSIGN(Segment area, attach_area<Peer>(config, layout, peer, kReadOnly));
        areas.push_back(area.const_data());
        segments.push_back(std::move(area));
    }
    // On the heap: the object keeps a pointer to it beside owning it.
    std::unique_ptr<TwoPhaseMemory> by_name;
    if (config.two_phase_memory == nullptr) {
        by_name = std::make_unique<NamedTwoPhaseMemory>(config.prefix);
    }
    TwoPhaseMemory& memory = by_name == nullptr ? *config.two_phase_memory : *by_name;
    auto made =
        std::make_unique<ShmTwoPhase>(layout, index, own.data(), areas, std::move(ringers), memory);
    segments.push_back(std::move(own));
    made->segments_ = std::move(segments);
    made->owned_memory_ = std::move(by_name);
    return made;
}

template <typename Own, typename Peer>
ShmTwoPhase<Own, Peer>::ShmTwoPhase(const TwoPhaseControlLayout& layout,
                                    uint32_t index,
                                    std::byte* own_area,
                                    const std::vector<const std::byte*>& peer_areas,
                                    std::vector<DoorbellRinger> ringers,
                                    TwoPhaseMemory& memory)
    : Base(layout,
           index,
           own_words<Own, Peer>(layout, own_area),
           peer_words<Peer>(layout, peer_areas, index)),
      ringers_(std::move(ringers)),
      memory_(&memory) {
    AFD_ASSERT(index < num_writers<Own>(layout) && peer_areas.size() == num_writers<Peer>(layout) &&
                   ringers_.size() == peer_areas.size(),
               "%s %u, %zu areas and %zu doorbells for %u peers",
               std::string(role_index_name(kRoleOf<Own>)).c_str(),
               index,
               peer_areas.size(),
               ringers_.size(),
               num_writers<Peer>(layout));
}

template <typename Own, typename Peer>
TwoPhaseKey ShmTwoPhase<Own, Peer>::key_of(TwoPhaseSegment segment,
                                           uint32_t peer,
                                           int32_t round) const {
    return kIsSession<Own> ? TwoPhaseKey{segment, peer, this->index(), round}
                           : TwoPhaseKey{segment, this->index(), peer, round};
}

template <typename Own, typename Peer>
Result<TwoPhaseRoundMemory> ShmTwoPhase<Own, Peer>::open(uint32_t peer,
                                                         int32_t round,
                                                         const TwoPhaseSizes& sizes) {
    const auto map = [&](TwoPhaseSegment segment, uint64_t bytes, Segment::Access access) {
        return memory_->map(key_of(segment, peer, round), bytes, access);
    };
    // Each side maps what it only reads without write permission, as with the windows: the kernel
    // enforces the direction.
    const auto of_session = kIsSession<Own> ? kReadWrite : kReadOnly;
    const auto of_rank = kIsSession<Own> ? kReadOnly : kReadWrite;
    AFD_ASSIGN(std::byte * rows, map(TwoPhaseSegment::kReceive, sizes.receive_bytes, of_session));
    AFD_ASSIGN(std::byte * results, map(TwoPhaseSegment::kReturn, sizes.return_bytes, of_rank));
    return kIsSession<Own> ? TwoPhaseRoundMemory{rows, results}
                           : TwoPhaseRoundMemory{results, rows};
}

template <typename Own, typename Peer>
void ShmTwoPhase<Own, Peer>::close(uint32_t peer, int32_t round) {
    // Unmapping what is not mapped does nothing. A predecessor's round is closed this way without
    // knowing how far it came.
    for (const auto segment : {TwoPhaseSegment::kReceive, TwoPhaseSegment::kReturn}) {
        memory_->unmap(key_of(segment, peer, round));
    }
}

template class ShmTwoPhase<TwoPhaseSessionWords, TwoPhaseRankWords>;
template class ShmTwoPhase<TwoPhaseRankWords, TwoPhaseSessionWords>;

}  // namespace afd::schedule
