// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyDispatch, ToyReturn: the two ends of a transport without shared memory
// (schedule/transport/transport.h). What one worker puts into another's memory is a message over
// the wire of ToyMachines. The example of how to add a transport, and the proof that the contract
// is enough. Rounds in two phases are in toy_two_phase.h; a worker's life begins in ToyNetwork
// (toy_network.h), which makes these.

#include <cstdint>
#include <memory>
#include <span>

#include "schedule/transport/transport.h"
#include "tests/schedule/transport/toy_machines.h"

namespace afd::schedule {

// A session's end. REQUIRES: `machines` outlives it.
class ToyDispatch final : public DispatchTransport {
  public:
    ToyDispatch(ToyMachines& machines, uint32_t session);

    void put_row(uint32_t rank,
                 uint32_t micro_batch,
                 uint32_t token_idx,
                 uint32_t k,
                 std::span<const std::byte> row) override;
    void publish(uint32_t rank,
                 uint32_t micro_batch,
                 int32_t layer_id,
                 std::span<const int32_t> ids,
                 int32_t round) override;
    Result<std::unique_ptr<TwoPhaseDispatchTransport>> two_phase() override;
    void ring_peers() override;

  private:
    void send(uint32_t rank, uint32_t micro_batch, bool is_barrier, ToyWire::Store store);

    ToyMachines& machines_;
};

// A rank's end. REQUIRES: `machines` outlives it.
class ToyReturn final : public ReturnTransport {
  public:
    ToyReturn(ToyMachines& machines, uint32_t rank);

    void put_result(uint32_t session,
                    uint32_t micro_batch,
                    uint32_t token_idx,
                    uint32_t k,
                    std::span<const std::byte> row,
                    int32_t round) override;
    void put_refusal(uint32_t session,
                     uint32_t micro_batch,
                     uint32_t token_idx,
                     uint32_t k,
                     int32_t round) override;
    void acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) override;
    Result<std::unique_ptr<TwoPhaseReturnTransport>> two_phase() override;
    void ring_peers() override;

    // Fetches what the sessions know of this rank's acknowledgements.
    void connect();

  private:
    void send(uint32_t session, uint32_t micro_batch, bool is_barrier, ToyWire::Store store);

    ToyMachines& machines_;
};

}  // namespace afd::schedule
