// SPDX-License-Identifier: Apache-2.0
#pragma once

// ShmPeers: a worker's segments and those of its peers, mapped, and the peers' doorbells: what both
// directions of the shared-memory transport have in common.
//
// The direction of every segment is enforced by the kernel:
//
//   segment             attention worker of the session   FFN worker of the rank   other side
//   FFN window          read-write (its own stripe)       read-only
//   FFN control         read-only                         read-write
//   attention window    read-only                         read-write (every rank)
//   attention control   read-write                        read-only
//
// attach() maps the segments by descriptor or name; the constructor takes addresses, so that tests
// can run all roles as threads over one mapping, where a thread sanitizer sees them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/check.h"
#include "proto/status.h"
#include "schedule/shared_memory/attach_config.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/transport/endpoint.h"
#include "schedule/wait/doorbell.h"

namespace afd::schedule {

// A peer's memory, or the stripes of it that concern us.
struct PeerMemory {
    std::byte* window = nullptr;
    const std::byte* control = nullptr;
};

// The control segment of a worker, prefaulted. Errors: those of Segment::attach;
// kFailedPrecondition: its header is not that of this instance (names both).
Result<Segment> attach_control(const AttachConfig& config,
                               Role role,
                               uint32_t index,
                               Segment::Access access);

class ShmPeers {
  public:
    // Maps own and all peers' segments, compares every header, prefaults what concerns the worker.
    // A colocated session has no peers and no window.
    // Errors: those of Segment::attach, Segment::prefault and check(); kInvalidArgument for an
    // index outside the geometry or a wrong number of doorbells.
    static Result<ShmPeers> attach(const AttachConfig& config, Role role, uint32_t index);

    // Over memory that the caller keeps mapped. REQUIRES: one doorbell per peer.
    ShmPeers(const std::byte* own_window,
             std::byte* own_control,
             std::vector<PeerMemory> peers,
             int own_doorbell,
             const std::vector<int>& peer_doorbells);

    EndpointMemory own() const;
    const std::byte* own_window() const { return own_window_; }

    size_t size() const { return peers_.size(); }
    std::byte* window(uint32_t peer) const { return peers_[peer].window; }
    const std::byte* control(uint32_t peer) const { return peers_[peer].control; }

    // What attach() was called with. REQUIRES: it was, and the descriptors in it are open.
    const AttachConfig& config() const {
        AFD_ASSERT(config_.has_value(), "segments over memory of the caller have no names");
        return *config_;
    }

    const std::vector<DoorbellRinger>& ringers() const { return ringers_; }
    void ring_if_armed(uint32_t peer) const { ringers_[peer].ring_if_armed(); }
    void ring_all() const;

  private:
    const std::byte* own_window_;
    std::byte* own_control_;
    int own_doorbell_;
    std::vector<PeerMemory> peers_;
    std::vector<DoorbellRinger> ringers_;
    std::optional<AttachConfig> config_;
    std::vector<Segment> segments_;
};

}  // namespace afd::schedule
