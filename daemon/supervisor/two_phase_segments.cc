// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/two_phase_segments.h"

#include "proto/failure.h"

namespace afd::daemon {

using schedule::TwoPhaseSegment;

TwoPhaseSegments::TwoPhaseSegments(std::string prefix,
                                   uint32_t num_sessions,
                                   uint64_t memory_max,
                                   const schedule::TwoPhaseSizes& sizes_max,
                                   schedule::Windows windows)
    : prefix_(std::move(prefix)),
      num_sessions_(num_sessions),
      memory_max_(memory_max),
      sizes_max_(sizes_max),
      windows_(windows) {}

TwoPhaseSegments::~TwoPhaseSegments() {
    for (const auto& [pair, entry] : entries_) unlink(entry);
}

// The numbers are a worker's: one that is wrong, or lies, must not fill the memory for all.
Result<> TwoPhaseSegments::check(uint32_t session,
                                 int32_t round,
                                 const schedule::TwoPhaseSizes& sizes) const {
    if (session >= num_sessions_ || round < 1) {
        return invalid_argument(
            "segments of round {} with session {}: rounds begin with 1, the instance has {} "
            "sessions",
            with(round, session, num_sessions_));
    }
    if (sizes.receive_bytes == 0 && sizes.return_bytes == 0) {
        return invalid_argument(
            "a two-phase round of session {} asks for 0 + 0 bytes: no round "
            "needs nothing",
            with(session));
    }
    const auto at_most = [&](const char* name, uint64_t value, uint64_t most) -> Result<> {
        if (value <= most) return {};
        return invalid_argument(
            "a two-phase round of session {} asks for {} = {}; allowed are 0 "
            "to {}",
            with(session, name, value, most));
    };
    AFD_TRY(at_most("receive_bytes", sizes.receive_bytes, sizes_max_.receive_bytes));
    return at_most("return_bytes", sizes.return_bytes, sizes_max_.return_bytes);
}

auto TwoPhaseSegments::acquire(uint32_t rank,
                               uint32_t session,
                               int32_t round,
                               const schedule::TwoPhaseSizes& sizes) -> Result<Descriptors> {
    AFD_TRY(check(session, round, sizes));
    const Pair pair{rank, session};
    if (const auto found = entries_.find(pair); found != entries_.end()) {
        // A rank's successor asks again for its predecessor's round: the same segments, the rows
        // untouched.
        const Entry& entry = found->second;
        if (entry.round == round && entry.sizes == sizes) return entry.descriptors();
        // These segments are of an older round whose release was lost. A pair has one round at a
        // time (R4), so nobody uses them.
        unlink(found->second);
        entries_.erase(found);
    }
    const uint64_t free =
        memory_max_ == 0 ? schedule::kWindowBytesMax : memory_max_ - bytes_of(rank);
    // In two steps: the sizes are a worker's, and their sum could wrap.
    if (sizes.receive_bytes > free || sizes.return_bytes > free - sizes.receive_bytes) {
        return resource_exhausted(
            "a two-phase round of session {} needs {} + {} bytes; {} of two_phase_memory_max = {} "
            "are free",
            with(session, sizes.receive_bytes, sizes.return_bytes, free, memory_max_));
    }
    Entry entry{.round = round, .sizes = sizes};
    const auto create = [&](TwoPhaseSegment which, uint64_t bytes) -> Result<schedule::Segment> {
        if (bytes == 0 || windows_ == schedule::Windows::kPrivate) return schedule::Segment();
        return schedule::Segment::create_sealed(
            schedule::two_phase_segment_name(prefix_, which, rank, session, round), bytes);
    };
    AFD_ASSIGN(entry.receive, create(TwoPhaseSegment::kReceive, sizes.receive_bytes));
    auto results = create(TwoPhaseSegment::kReturn, sizes.return_bytes);
    if (!results.ok()) {
        unlink(entry);
        return results.error();
    }
    entry.results = std::move(results).value();
    const Descriptors descriptors = entry.descriptors();
    entries_[pair] = std::move(entry);
    return descriptors;
}

void TwoPhaseSegments::release(uint32_t rank, uint32_t session, int32_t round) {
    const auto found = entries_.find({rank, session});
    // Segments of an older round go, too: their own release was lost, and a pair has one round at a
    // time (R4; docs/protocol/control.pml, NO_LATER). Rounds are compared by order, although
    // numbers begin anew (R1): what a lost release leaves there goes with the next acquire(), and
    // messages of a pair come in order.
    if (found == entries_.end() || found->second.round > round) return;
    unlink(found->second);
    entries_.erase(found);
}

void TwoPhaseSegments::forget(uint32_t rank) {
    if (windows_ == schedule::Windows::kShared) return;
    std::erase_if(entries_, [&](const auto& entry) { return entry.first.first == rank; });
}

uint64_t TwoPhaseSegments::bytes_of(uint32_t rank) const {
    uint64_t bytes = 0;
    for (const auto& [pair, entry] : entries_) {
        if (pair.first == rank) bytes += entry.sizes.receive_bytes + entry.sizes.return_bytes;
    }
    return bytes;
}

void TwoPhaseSegments::unlink(const Entry& entry) {
    for (const schedule::Segment* segment : {&entry.receive, &entry.results}) {
        if (segment->size() > 0) schedule::Segment::unlink(segment->name());
    }
}

}  // namespace afd::daemon
