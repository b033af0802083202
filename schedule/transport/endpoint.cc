// SPDX-License-Identifier: Apache-2.0
#include "schedule/transport/endpoint.h"

#include "proto/check.h"

namespace afd::schedule {

Endpoint::Endpoint(uint32_t index, const EndpointMemory& memory)
    : index_(index),
      control_(memory.control),
      doorbell_(memory.doorbell),
      arrivals_(memory.arrivals),
      peer_heartbeats_(memory.peer_heartbeats),
      observers_(memory.peer_heartbeats.size()) {}

PeerState Endpoint::peer(uint32_t index, uint64_t now_us) {
    AFD_ASSERT(index < observers_.size(), "peer %u of %zu", index, observers_.size());
    // The age is counted from this observer's own looks: the peers' clocks are not compared.
    PeerState state;
    state.heartbeat = read_heartbeat(*peer_heartbeats_[index]);
    state.heartbeat_age_us = observers_[index].observe(state.heartbeat, now_us);
    return state;
}

}  // namespace afd::schedule
