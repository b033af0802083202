// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxReturn: a rank's end of the transport over UCX. Its window is memory of its own, into which
// the thread that receives stores what the sessions send; a new process begins with an empty one,
// and sessions send again what is open (R15). The acknowledged words of the control area begin at 0
// too; the executions that stand there are kept (R11).

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/transport/transport.h"
#include "schedule/ucx/ucx_end.h"
#include "schedule/ucx/ucx_memory.h"
#include "schedule/ucx/ucx_outbox.h"
#include "schedule/ucx/ucx_return_rounds.h"

namespace afd::schedule {

class UcxReturn final : public ReturnTransport, private UcxEnd::Meaning {
  public:
    // Puts its address into `config.book`, as afdd would; sessions connect then.
    // REQUIRES: config.role is kFfn; `worker` listens.
    // Errors: those of private_memory.h: the window does not fit.
    static Result<std::unique_ptr<UcxReturn>> make(const UcxEndConfig& config,
                                                   const WindowLayout& layout,
                                                   std::unique_ptr<UcxWorker> worker);
    ~UcxReturn() override;

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
    void ring_peers() override { end_->ring_peers(); }

    UcxEnd& end() { return *end_; }

  private:
    struct Memory {
        UcxMemory window;
        UcxReturnRounds::Words words;
        std::vector<std::unique_ptr<UcxOutbox>> outboxes;  // [A][M]
    };
    // UcxHeader::number of the last of a lane. 0: none.
    struct Numbers {
        uint64_t sent = 0;
        uint64_t taken = 0;  // On this connection.
    };

    static Result<Memory> make_memory(const WindowLayout& layout);
    UcxReturn(const WindowLayout& layout, std::unique_ptr<UcxEnd> end, Memory memory);

    void write_welcome(uint32_t session, std::span<int32_t> words) override;
    void read_welcome(uint32_t, std::span<const int32_t>) override {}
    void on_open(uint32_t session) override;
    void on_close(uint32_t session) override { rounds_.on_close(session); }
    bool on_message(uint32_t session,
                    const UcxHeader& header,
                    std::span<const std::byte> payload) override;
    bool store_descriptor(uint32_t session,
                          const UcxHeader& header,
                          std::span<const std::byte> payload);
    size_t lane(uint32_t session, uint32_t micro_batch) const {
        return size_t{session} * layout().geometry.num_micro_batches + micro_batch;
    }
    UcxOutbox& outbox(uint32_t session, uint32_t micro_batch) {
        return *memory_.outboxes[lane(session, micro_batch)];
    }

    Memory memory_;
    std::vector<Numbers> numbers_;  // [A][M]
    UcxReturnRounds rounds_;
    std::unique_ptr<UcxEnd> end_;  // Ends first: what is on its way lies in the memory.
};

}  // namespace afd::schedule
