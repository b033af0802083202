// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxDispatch: a session's end of the transport over UCX. Its window is memory of its own, into
// which the thread that receives stores what the ranks send.
//
// A rank of which nothing is known yet has a descriptor flag that no acknowledgement carries, so
// that R10 holds the session's lanes back until the rank has said what stands there.

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/transport/transport.h"
#include "schedule/ucx/ucx_dispatch_rounds.h"
#include "schedule/ucx/ucx_end.h"
#include "schedule/ucx/ucx_memory.h"
#include "schedule/ucx/ucx_outbox.h"

namespace afd::schedule {

class UcxDispatch final : public DispatchTransport, private UcxEnd::Meaning {
  public:
    // Puts its epoch into `config.book`, as afdd would, and begins to connect.
    // REQUIRES: config.role is kAttention.
    // Errors: those of private_memory.h: the window does not fit.
    static Result<std::unique_ptr<UcxDispatch>> make(const UcxEndConfig& config,
                                                     const WindowLayout& layout,
                                                     std::unique_ptr<UcxWorker> worker);
    ~UcxDispatch() override;

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
    bool can_fence() const override { return true; }
    void fence(uint32_t rank, uint32_t micro_batch) override;
    Result<std::unique_ptr<TwoPhaseDispatchTransport>> two_phase() override;
    std::vector<LinkView> links() const override { return end_->links(); }
    void ring_peers() override { end_->ring_peers(); }

    UcxEnd& end() { return *end_; }

  private:
    // The part of a lane that goes to one rank.
    struct Lane {
        std::unique_ptr<UcxOutbox> outbox;
        // The round published is this process's, and not fenced off.
        bool is_own = false;
        // UcxHeader::number of the last; 0: none.
        uint64_t sent = 0;
        uint64_t taken = 0;  // On this connection.
    };
    struct Rank {
        std::vector<int32_t> published;     // [M]
        std::vector<int32_t> acknowledged;  // [M]: mirror.
        std::vector<Lane> lanes;            // [M]
    };
    struct Memory {
        UcxMemory window;
        std::vector<Rank> ranks;
        UcxDispatchRounds::Words words;
    };

    static Result<std::unique_ptr<Memory>> make_memory(const WindowLayout& layout);
    UcxDispatch(const WindowLayout& layout,
                std::unique_ptr<UcxEnd> end,
                std::unique_ptr<Memory> memory);
    static std::vector<RankMirror> mirrors_of(const Memory& memory);

    void write_welcome(uint32_t, std::span<int32_t>) override {}
    void read_welcome(uint32_t rank, std::span<const int32_t> words) override;
    void on_open(uint32_t rank) override;
    void on_close(uint32_t rank) override { rounds_.on_close(rank); }
    bool on_message(uint32_t rank,
                    const UcxHeader& header,
                    std::span<const std::byte> payload) override;
    bool store_results(const Lane& lane, const UcxHeader& header, const UcxRecords& records);

    std::vector<int32_t> asked_ids_;  // [BS * K1]: of the round whose results arrive.
    std::unique_ptr<Memory> memory_;
    UcxDispatchRounds rounds_;
    std::unique_ptr<UcxEnd> end_;  // Ends first: messages lie in the memory.
};

}  // namespace afd::schedule
