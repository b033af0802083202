// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxNetwork: an instance whose workers talk over UCX, all in one process. For tests it is what
// LocalInstance is over one mapping. Of a worker only its control area outlives its process.

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/ucx/ucx_address_book.h"
#include "schedule/ucx/ucx_dispatch.h"
#include "schedule/ucx/ucx_return.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {

class UcxNetwork {
  public:
    explicit UcxNetwork(const Geometry& geometry, const UcxConfig& config = default_config());

    static UcxConfig default_config() { return {.transports = "tcp", .devices = "lo"}; }

    // The beginning of a worker's life: a process with the next epoch of its place.
    std::unique_ptr<UcxDispatch> dispatch(uint32_t session);
    std::unique_ptr<UcxReturn> returns(uint32_t rank);
    // One that afdd did not name: of an epoch of the past, or of the future.
    std::unique_ptr<UcxDispatch> dispatch_of_epoch(uint32_t session, uint64_t epoch);

    // Of the ends that are made from here on.
    void set_stuck_us(uint64_t stuck_us) { config_.stuck_us = stuck_us; }

    UcxEndConfig end_config(Role role, uint32_t index, uint64_t epoch);
    const WindowLayout& layout() const { return layout_; }
    const UcxConfig& config() const { return config_; }
    UcxAddressBook& book() { return book_; }

  private:
    UcxConfig config_;
    WindowLayout layout_;
    UcxAddressBook book_;
    EventFds session_doorbells_;
    EventFds rank_doorbells_;
    std::vector<Bytes> session_controls_;
    std::vector<Bytes> rank_controls_;
};

}  // namespace afd::schedule
