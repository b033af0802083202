// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/shm_peers.h"

#include <utility>

#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/context/control_view.h"

namespace afd::schedule {
namespace {

using enum Segment::Access;

Result<> check_config(const AttachConfig& config, Role role, uint32_t index) {
    const Geometry& geometry = config.layout.geometry;
    const bool is_ffn = role == Role::kFfn;
    const uint32_t num_own = is_ffn ? geometry.num_ffn_workers : geometry.num_sessions;
    const uint32_t num_peers = is_ffn ? geometry.num_sessions : geometry.num_ffn_workers;
    if (index >= num_own) {
        return invalid_argument("{} {} does not exist; the instance has {}",
                                with(role_index_name(role), index, num_own));
    }
    if (config.peer_doorbells.size() != num_peers || config.own_doorbell < 0) {
        return invalid_argument(
            "attach needs its own doorbell and one for each of {} peers; it got {}",
            with(num_peers, config.peer_doorbells.size()));
    }
    return {};
}

Result<Segment> attach_window(const AttachConfig& config,
                              Role role,
                              uint32_t index,
                              Segment::Access access) {
    const uint64_t bytes = role == Role::kFfn ? config.layout.ffn_window.total_bytes
                                              : config.layout.attention_window.total_bytes;
    return config.attach(
        segment_name(config.prefix, role, index, SegmentKind::kWindow), bytes, access);
}

// The stripe of one session in an FFN window: its descriptors and its rows.
Result<> prefault_stripe(const Segment& window, const WindowLayout& layout, uint32_t session) {
    const uint64_t num_sessions = layout.geometry.num_sessions;
    AFD_TRY(window.prefault(layout.descriptor_offset(session, 0),
                            layout.ffn_window.info_bytes / num_sessions));
    return window.prefault(layout.token_row_offset(session, 0, 0, 0),
                           layout.ffn_window.data_bytes / num_sessions);
}

}  // namespace

Result<Segment> attach_control(const AttachConfig& config,
                               Role role,
                               uint32_t index,
                               Segment::Access access) {
    const uint64_t bytes = role == Role::kFfn ? config.layout.ffn_control.total_bytes
                                              : config.layout.attention_control_bytes;
    const std::string name = segment_name(config.prefix, role, index, SegmentKind::kControl);
    AFD_ASSIGN(Segment control, config.attach(name, bytes, access));
    AFD_ASSIGN(const SegmentHeader expected,
               make_segment_header(config.layout.geometry, config.identity, role, index));
    const SegmentHeader found = ConstControlView(control.const_data()).header();
    if (Result<> checked = check(found, expected); !checked.ok()) {
        return Error{checked.error().code, name + ": " + checked.error().message};
    }
    // After the header was accepted: pages of a segment that is refused are not worth touching.
    AFD_TRY(control.prefault(0, bytes));
    return control;
}

Result<ShmPeers> ShmPeers::attach(const AttachConfig& config, Role role, uint32_t index) {
    AFD_TRY(check_config(config, role, index));
    std::vector<Segment> segments;
    AFD_ASSIGN(Segment control, attach_control(config, role, index, kReadWrite));
    const std::byte* own_window = nullptr;
    if (!config.peer_doorbells.empty()) {
        AFD_ASSIGN(Segment window, attach_window(config, role, index, kReadOnly));
        AFD_TRY(window.prefault(0, window.size()));
        own_window = window.const_data();
        segments.push_back(std::move(window));
    }
    const Role peer_role = role == Role::kFfn ? Role::kAttention : Role::kFfn;
    std::vector<PeerMemory> peers;
    for (uint32_t peer = 0; peer < config.peer_doorbells.size(); ++peer) {
        AFD_ASSIGN(Segment peer_control, attach_control(config, peer_role, peer, kReadOnly));
        AFD_ASSIGN(Segment peer_window, attach_window(config, peer_role, peer, kReadWrite));
        // A rank writes into any slot of a session's window. A session touches nothing but its own
        // stripe, so it brings in only that: the window of A sessions may be large.
        AFD_TRY(role == Role::kFfn ? peer_window.prefault(0, peer_window.size())
                                   : prefault_stripe(peer_window, config.layout, index));
        peers.push_back({peer_window.data(), peer_control.const_data()});
        segments.push_back(std::move(peer_control));
        segments.push_back(std::move(peer_window));
    }
    ShmPeers made(
        own_window, control.data(), std::move(peers), config.own_doorbell, config.peer_doorbells);
    segments.push_back(std::move(control));
    made.config_ = config;
    // Moved mappings keep their addresses, so the pointers above stay good.
    made.segments_ = std::move(segments);
    return made;
}

ShmPeers::ShmPeers(const std::byte* own_window,
                   std::byte* own_control,
                   std::vector<PeerMemory> peers,
                   int own_doorbell,
                   const std::vector<int>& peer_doorbells)
    : own_window_(own_window),
      own_control_(own_control),
      own_doorbell_(own_doorbell),
      peers_(std::move(peers)) {
    AFD_ASSERT(peer_doorbells.size() == peers_.size(),
               "%zu doorbells for %zu peers",
               peer_doorbells.size(),
               peers_.size());
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
        ringers_.emplace_back(ConstControlView(peers_[peer].control).armed(), peer_doorbells[peer]);
    }
}

EndpointMemory ShmPeers::own() const {
    EndpointMemory own{own_control_, own_doorbell_, {}};
    for (const PeerMemory& peer : peers_) {
        own.peer_heartbeats.push_back(&ConstControlView(peer.control).heartbeat_words());
    }
    return own;
}

void ShmPeers::ring_all() const {
    for (const DoorbellRinger& ringer : ringers_) ringer.ring();
}

}  // namespace afd::schedule
