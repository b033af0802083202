// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shared-memory implementations of DispatchTransport and ReturnTransport: a put is a store into
// the peer's segment, and every mirror is the original. put_result() is the live path of the FFN
// workers; the operator that stands alone is ops/operators/ffn_to_attention.h.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "proto/status.h"
#include "schedule/shared_memory/shm_peers.h"
#include "schedule/transport/transport.h"

namespace afd::schedule {

class ShmDispatchTransport final : public DispatchTransport {
  public:
    // Errors: those of ShmPeers::attach.
    static Result<std::unique_ptr<ShmDispatchTransport>> attach(const AttachConfig& config,
                                                                uint32_t session);

    // REQUIRES: one peer per FFN worker.
    ShmDispatchTransport(const WindowLayout& layout, uint32_t session, ShmPeers ranks);

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
    void ring_peers() override { ranks_.ring_all(); }

  private:
    ShmPeers ranks_;
};

class ShmReturnTransport final : public ReturnTransport {
  public:
    // Errors: those of ShmPeers::attach.
    static Result<std::unique_ptr<ShmReturnTransport>> attach(const AttachConfig& config,
                                                              uint32_t rank);

    // REQUIRES: one peer per session.
    ShmReturnTransport(const WindowLayout& layout, uint32_t rank, ShmPeers sessions);

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
    void ring_peers() override { sessions_.ring_all(); }

  private:
    int32_t* result_flag(uint32_t session,
                         uint32_t micro_batch,
                         uint32_t token_idx,
                         uint32_t k) const;

    ShmPeers sessions_;
};

// The end of a colocated session, which has no peers.
class ShmEndpoint final : public Endpoint {
  public:
    // Errors: those of ShmPeers::attach.
    static Result<std::unique_ptr<ShmEndpoint>> attach(const AttachConfig& config,
                                                       uint32_t session);

    void ring_peers() override {}

  private:
    ShmEndpoint(uint32_t session, ShmPeers nobody);

    ShmPeers nobody_;
};

}  // namespace afd::schedule
