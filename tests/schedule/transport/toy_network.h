// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyNetwork: an instance whose workers share no memory: each has a machine of its own, and what
// one puts into another's memory travels as a message. Messages arrive late and in any order that
// the contract allows (toy_wire.h), and a dead worker's last ones are lost. For tests it is what
// LocalInstance is over one mapping; how it moves bytes is in toy_transport.h.

#include <cstdint>
#include <memory>

#include "tests/schedule/transport/toy_machines.h"

namespace afd::schedule {

class ToyNetwork {
  public:
    explicit ToyNetwork(const Geometry& geometry, uint64_t seed = 1) : machines_(geometry, seed) {}

    // The beginning of a worker's life.
    std::unique_ptr<DispatchTransport> dispatch(uint32_t session);
    std::unique_ptr<ReturnTransport> returns(uint32_t rank);

    const WindowLayout& layout() const { return machines_.layout(); }
    int rank_doorbell(uint32_t rank) const { return machines_.rank_doorbells()[rank]; }
    // What a worker sleeps on.
    Doorbell doorbell(Role role, uint32_t index) const { return machines_.doorbell(role, index); }

    // Words of the machines, for tests that prepare them before any worker lives.
    int32_t* descriptor(uint32_t rank, uint32_t session, uint32_t m) {
        return machines_.descriptor(rank, session, m);
    }
    int32_t* acknowledged(uint32_t rank, uint32_t session, uint32_t m) {
        return machines_.acknowledged(rank, session, m);
    }
    int32_t* result_flag(uint32_t session, uint32_t m, uint32_t token_idx, uint32_t k) {
        return machines_.result_flag(session, m, token_idx, k);
    }

  private:
    ToyMachines machines_;
};

}  // namespace afd::schedule
