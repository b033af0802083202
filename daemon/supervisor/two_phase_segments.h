// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseSegments: the memory of two-phase rounds, which afdd makes on request and unlinks. So a
// crashed worker takes none along, and its successor finds the rows of an open round. Workers that
// share no windows have that memory themselves, each its own, and a round ends with its worker;
// here it is only counted.
//
// An FFN rank has at most one round with each session. Its segments live from acquire() to
// release() of it or of a later one, to the acquire() of another round of the two, to the forget()
// of the rank, or to the end of the object.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "proto/status.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/shared_memory/worker_segments.h"

namespace afd::daemon {

class TwoPhaseSegments {
  public:
    // `memory_max`: bytes of all segments of one rank at a time; 0: no limit but the
    // machine's.
    // `sizes_max`: what the two segments of a round have at most (two_phase_sizes_max).
    TwoPhaseSegments(std::string prefix,
                     uint32_t num_sessions,
                     uint64_t memory_max,
                     const schedule::TwoPhaseSizes& sizes_max,
                     schedule::Windows windows = schedule::Windows::kShared);
    ~TwoPhaseSegments();
    TwoPhaseSegments(const TwoPhaseSegments&) = delete;
    TwoPhaseSegments& operator=(const TwoPhaseSegments&) = delete;

    // Descriptors of the two segments of a round, good until its release(); -1: of 0 bytes, or of
    // workers that share no windows.
    struct Descriptors {
        int receive = -1;
        int results = -1;
    };

    // Makes the segments of a round, zeroed; or leaves those that it has, if the sizes are the
    // same. Cost: that of clearing the memory.
    // Errors: kInvalidArgument: no such session, a round below 1, no bytes at all, or more than any
    // round needs (names size, value and what is allowed). kResourceExhausted: memory_max or the
    // machine's memory is too small (names bytes and limit); then nothing of the round remains.
    Result<Descriptors> acquire(uint32_t rank,
                                uint32_t session,
                                int32_t round,
                                const schedule::TwoPhaseSizes& sizes);

    // Unlinks the segments of a round, or of one before it; nothing if there are none.
    void release(uint32_t rank, uint32_t session, int32_t round);
    // The rank's process is gone, and with it the memory that it had itself. Of workers that share
    // windows it had none.
    void forget(uint32_t rank);

    // Bytes that a rank's segments have now.
    uint64_t bytes_of(uint32_t rank) const;

  private:
    using Pair = std::pair<uint32_t, uint32_t>;  // Rank, session.
    struct Entry {
        int32_t round = 0;
        schedule::TwoPhaseSizes sizes;
        // Names and descriptors live as long as these; of 0 bytes: empty.
        schedule::Segment receive = {};
        schedule::Segment results = {};

        Descriptors descriptors() const { return {receive.descriptor(), results.descriptor()}; }
    };

    Result<> check(uint32_t session, int32_t round, const schedule::TwoPhaseSizes& sizes) const;
    static void unlink(const Entry& entry);

    const std::string prefix_;
    const uint32_t num_sessions_;
    const uint64_t memory_max_;
    const schedule::TwoPhaseSizes sizes_max_;
    const schedule::Windows windows_;
    std::map<Pair, Entry> entries_;
};

}  // namespace afd::daemon
