// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseWorld: control areas, doorbells and segments of two-phase rounds in ordinary memory of
// one process, so that a thread sanitizer sees every access; and a thread that makes segments as
// afdd does. Or the same over ToyNetwork, whose workers share no memory.

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "daemon/config/instance_geometry.h"
#include "daemon/ffn/two_phase_experts.h"
#include "daemon/lanes/remote_two_phase.h"
#include "daemon/program/logging.h"
#include "schedule/shared_memory/shm_two_phase.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/transport/toy_network.h"

namespace afd::daemon {

// More than any call of these tests has, in blocks of whatever size.
inline constexpr schedule::TwoPhaseCall kAmpleCall{
    .num_tokens = 1024, .block_tokens = 1, .selected_expert_num = 1024};

// The segments of all rounds; both sides get the same address.
class LocalTwoPhaseMemory final : public schedule::TwoPhaseMemory {
  public:
    Result<std::byte*> map(const schedule::TwoPhaseKey& key,
                           uint64_t bytes,
                           schedule::Segment::Access) override {
        if (bytes == 0) return nullptr;
        const std::lock_guard lock(mutex_);
        const auto found = segments_.find(key);
        if (found == segments_.end() || found->second.bytes != bytes) {
            return Error{Code::kNotFound, "no segment of this size"};
        }
        return found->second.memory.get();
    }
    void unmap(const schedule::TwoPhaseKey&) override {}

    void make(const schedule::TwoPhaseKey& key, uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        if (bytes == 0 || segments_.count(key) != 0) return;
        segments_[key] = {schedule::zeroed_bytes(bytes), bytes};
        live_bytes_ += bytes;
        peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    }
    void drop(const schedule::TwoPhaseKey& key) {
        const std::lock_guard lock(mutex_);
        const auto found = segments_.find(key);
        if (found == segments_.end()) return;
        live_bytes_ -= found->second.bytes;
        segments_.erase(found);
    }
    uint64_t live_bytes() {
        const std::lock_guard lock(mutex_);
        return live_bytes_;
    }

  private:
    struct Entry {
        schedule::Bytes memory;
        uint64_t bytes = 0;
    };
    std::mutex mutex_;
    std::map<schedule::TwoPhaseKey, Entry> segments_;
    uint64_t live_bytes_ = 0;
    uint64_t peak_bytes_ = 0;
};

class TwoPhaseWorld {
  public:
    enum class Over { kSharedMemory, kToyNetwork };
    // `receive_bytes_max`: a larger receive segment is not made.
    TwoPhaseWorld(uint32_t num_sessions,
                  uint32_t num_ranks,
                  uint32_t num_experts,
                  uint64_t receive_bytes_max = UINT64_MAX,
                  Over over = Over::kSharedMemory)
        : layout_(schedule::TwoPhaseControlLayout::compute({.num_sessions = num_sessions,
                                                            .num_experts = num_experts,
                                                            .num_ffn_workers = num_ranks})),
          receive_bytes_max_(receive_bytes_max),
          session_fds_(num_sessions),
          rank_fds_(num_ranks),
          armed_(schedule::zeroed_bytes(schedule::kLineBytes * (num_sessions + num_ranks))) {
        // As the programs do, before any other thread runs: the logger's library makes it at its
        // first use, which a thread sanitizer cannot see to be safe.
        set_up_logging("test", "warn", "text");
        if (over == Over::kToyNetwork) {
            toy_ = std::make_unique<schedule::ToyNetwork>(
                schedule::Geometry{.num_sessions = num_sessions,
                                   .num_micro_batches = 1,
                                   .micro_batch_size = 1,
                                   .selected_expert_num = 1,
                                   .num_experts = num_experts,
                                   .attn_to_ffn_token_bytes = 512,
                                   .ffn_to_attn_token_bytes = 512,
                                   .num_ffn_workers = num_ranks});
        }
        for (uint32_t s = 0; s < num_sessions; ++s) {
            sessions_.push_back(schedule::zeroed_bytes(layout_.session_bytes()));
        }
        for (uint32_t r = 0; r < num_ranks; ++r) {
            ranks_.push_back(schedule::zeroed_bytes(layout_.rank_bytes()));
            ports_.push_back(std::make_unique<WorkerPort>(256, 256, rank_doorbell(r).eventfd()));
        }
        broker_ = std::thread([this] { serve(); });
    }
    ~TwoPhaseWorld() {
        is_over_.store(true, std::memory_order_relaxed);
        broker_.join();
    }

    const schedule::TwoPhaseControlLayout& layout() const { return layout_; }
    LocalTwoPhaseMemory& memory() { return memory_; }
    WorkerPort& port(uint32_t rank) { return *ports_[rank]; }
    // Requests of all ranks that were answered.
    uint32_t num_requests() const { return num_requests_.load(std::memory_order_relaxed); }

    schedule::Doorbell session_doorbell(uint32_t session) {
        if (toy_) return toy_->doorbell(schedule::Role::kAttention, session);
        return {armed_word(session), session_fds_[session]};
    }
    schedule::Doorbell rank_doorbell(uint32_t rank) {
        if (toy_) return toy_->doorbell(schedule::Role::kFfn, rank);
        return {armed_word(layout_.num_sessions + rank), rank_fds_[rank]};
    }

    // Ends of sessions and ranks, and what goes over them. The world outlives the latter.
    std::unique_ptr<schedule::TwoPhaseDispatchTransport> dispatch(uint32_t session) {
        if (toy_) return toy_->dispatch(session)->two_phase().value();
        std::vector<const std::byte*> areas;
        std::vector<schedule::DoorbellRinger> ringers;
        for (uint32_t r = 0; r < layout_.num_ranks; ++r) {
            areas.push_back(ranks_[r].get());
            ringers.emplace_back(armed_word(layout_.num_sessions + r), rank_fds_[r]);
        }
        return std::make_unique<schedule::ShmTwoPhaseDispatch>(
            layout_, session, sessions_[session].get(), areas, std::move(ringers), memory_);
    }
    std::unique_ptr<schedule::TwoPhaseReturnTransport> returns(uint32_t rank) {
        if (toy_) return toy_->returns(rank)->two_phase().value();
        std::vector<const std::byte*> areas;
        std::vector<schedule::DoorbellRinger> ringers;
        for (uint32_t s = 0; s < layout_.num_sessions; ++s) {
            areas.push_back(sessions_[s].get());
            ringers.emplace_back(armed_word(s), session_fds_[s]);
        }
        return std::make_unique<schedule::ShmTwoPhaseReturn>(
            layout_, rank, ranks_[rank].get(), areas, std::move(ringers), memory_);
    }
    std::unique_ptr<schedule::TwoPhaseSender> sender(uint32_t session) {
        return std::make_unique<schedule::TwoPhaseSender>(keep(dispatch(session)));
    }
    std::unique_ptr<schedule::TwoPhaseReceiver> receiver(
        uint32_t rank,
        const schedule::ExpertPlacement& placement,
        const schedule::TwoPhaseRowBytes& row_bytes) {
        return std::make_unique<schedule::TwoPhaseReceiver>(
            keep(returns(rank)),
            placement,
            schedule::TwoPhaseReceiver::Limits{.num_experts = placement.num_local_experts_max(),
                                               .row_bytes = row_bytes,
                                               .call = kAmpleCall});
    }

    // Words of the areas, for tests that spoil them.
    schedule::TwoPhaseSessionWords& session_words(uint32_t session, uint32_t rank) {
        void* stripe = sessions_[session].get() + rank * layout_.session_stripe_bytes;
        return *static_cast<schedule::TwoPhaseSessionWords*>(stripe);
    }

    schedule::TwoPhaseRankWords& rank_words(uint32_t rank, uint32_t session) {
        void* stripe = ranks_[rank].get() + session * layout_.rank_stripe_bytes;
        return *static_cast<schedule::TwoPhaseRankWords*>(stripe);
    }

  private:
    template <typename Transport>
    Transport& keep(std::unique_ptr<Transport> transport) {
        const std::lock_guard lock(kept_mutex_);
        kept_.emplace_back(std::move(transport));
        return *static_cast<Transport*>(kept_.back().get());
    }
    int32_t* armed_word(uint32_t index) {
        void* word = armed_.get() + index * schedule::kLineBytes;
        return static_cast<int32_t*>(word);
    }

    void serve() {
        // Relaxed: a flag that orders nothing.
        while (!is_over_.load(std::memory_order_relaxed)) {
            for (uint32_t rank = 0; rank < ports_.size(); ++rank) {
                for (WorkerEvent event; ports_[rank]->pop_event(event);) take(rank, event);
            }
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }

    void take(uint32_t rank, const WorkerEvent& event) {
        using schedule::TwoPhaseSegment;
        const auto& [session, round, receive_bytes, return_bytes] = event.segment;
        const schedule::TwoPhaseKey receive{TwoPhaseSegment::kReceive, rank, session, round};
        const schedule::TwoPhaseKey back{TwoPhaseSegment::kReturn, rank, session, round};
        if (event.kind == WorkerEvent::Kind::kSegmentRelease) {
            memory_.drop(receive);
            memory_.drop(back);
            return;
        }
        WorkerCommand answer{.kind = WorkerCommand::Kind::kSegment};
        answer.session = session;
        answer.round = round;
        if (receive_bytes > receive_bytes_max_) {
            answer.code = Code::kResourceExhausted;
        } else {
            memory_.make(receive, receive_bytes);
            memory_.make(back, return_bytes);
        }
        num_requests_.fetch_add(1, std::memory_order_relaxed);
        while (!ports_[rank]->push_command(std::move(answer))) std::this_thread::yield();
    }

    schedule::TwoPhaseControlLayout layout_;
    const uint64_t receive_bytes_max_;
    schedule::EventFds session_fds_;
    schedule::EventFds rank_fds_;
    schedule::Bytes armed_;
    std::vector<schedule::Bytes> sessions_;
    std::vector<schedule::Bytes> ranks_;
    std::vector<std::unique_ptr<WorkerPort>> ports_;
    LocalTwoPhaseMemory memory_;
    std::unique_ptr<schedule::ToyNetwork> toy_;  // Or null.
    std::atomic<bool> is_over_{false};
    std::atomic<uint32_t> num_requests_{0};
    std::mutex kept_mutex_;
    std::vector<std::shared_ptr<void>> kept_;  // Ends of sender() and receiver().
    std::thread broker_;
};

}  // namespace afd::daemon
