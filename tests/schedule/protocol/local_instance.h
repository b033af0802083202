// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalInstance: all segments of an instance in ordinary memory of one process, formatted as afdd
// does it, and transports over them. One mapping, so a thread sanitizer sees every race.

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "schedule/context/fresh_memory.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/shared_memory/shm_transport.h"

namespace afd::schedule {

inline Geometry small_geometry() {
    return {.num_sessions = 2,
            .num_micro_batches = 2,
            .micro_batch_size = 3,
            .selected_expert_num = 3,
            .num_experts = 8,
            .attn_to_ffn_token_bytes = 512,
            .ffn_to_attn_token_bytes = 512,
            .num_ffn_workers = 2};
}

inline InstanceIdentity test_identity() {
    return {0x0123456789abcdef, "model-a", "portable-1"};
}

struct FreeDeleter {
    void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Bytes = std::unique_ptr<std::byte, FreeDeleter>;

// Zeroed and aligned to a page, as a mapping is.
inline Bytes zeroed_bytes(uint64_t size_bytes) {
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t rounded = round_up(size_bytes, kPageBytes);
    Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded)));
    std::fill_n(bytes.get(), rounded, std::byte{0});
    return bytes;
}

// Non-blocking eventfds, closed at the end.
class EventFds {
  public:
    explicit EventFds(size_t count) {
        for (size_t i = 0; i < count; ++i) fds_.push_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    }
    EventFds(const EventFds&) = delete;
    EventFds& operator=(const EventFds&) = delete;
    ~EventFds() {
        for (const int fd : fds_) ::close(fd);
    }
    int operator[](size_t i) const { return fds_[i]; }
    const std::vector<int>& all() const { return fds_; }

  private:
    std::vector<int> fds_;
};

class LocalInstance {
  public:
    explicit LocalInstance(const Geometry& geometry)
        : layout_(WindowLayout::compute(geometry).value()),
          session_doorbells_(geometry.num_sessions),
          rank_doorbells_(geometry.num_ffn_workers) {
        for (uint32_t s = 0; s < geometry.num_sessions; ++s) {
            session_windows_.push_back(zeroed_bytes(layout_.attention_window.total_bytes));
            session_controls_.push_back(zeroed_bytes(layout_.attention_control_bytes));
            format(Role::kAttention, s, session_controls_.back().get());
        }
        for (uint32_t f = 0; f < geometry.num_ffn_workers; ++f) {
            rank_windows_.push_back(zeroed_bytes(layout_.ffn_window.total_bytes));
            rank_controls_.push_back(zeroed_bytes(layout_.ffn_control.total_bytes));
            format_ffn_window(layout_, rank_windows_.back().get());
            format(Role::kFfn, f, rank_controls_.back().get());
        }
    }

    std::unique_ptr<ShmDispatchTransport> dispatch(uint32_t session) {
        std::vector<PeerMemory> ranks;
        for (size_t f = 0; f < rank_windows_.size(); ++f) {
            ranks.push_back({rank_windows_[f].get(), rank_controls_[f].get()});
        }
        return std::make_unique<ShmDispatchTransport>(layout_,
                                                      session,
                                                      ShmPeers(session_windows_[session].get(),
                                                               session_controls_[session].get(),
                                                               std::move(ranks),
                                                               session_doorbells_[session],
                                                               rank_doorbells_.all()));
    }

    std::unique_ptr<ShmReturnTransport> returns(uint32_t rank) {
        std::vector<PeerMemory> sessions;
        for (size_t s = 0; s < session_windows_.size(); ++s) {
            sessions.push_back({session_windows_[s].get(), session_controls_[s].get()});
        }
        return std::make_unique<ShmReturnTransport>(layout_,
                                                    rank,
                                                    ShmPeers(rank_windows_[rank].get(),
                                                             rank_controls_[rank].get(),
                                                             std::move(sessions),
                                                             rank_doorbells_[rank],
                                                             session_doorbells_.all()));
    }

    const WindowLayout& layout() const { return layout_; }
    int rank_doorbell(uint32_t rank) const { return rank_doorbells_[rank]; }

    // Words of the windows, for tests that prepare or spoil them.
    int32_t* descriptor(uint32_t rank, uint32_t session, uint32_t m) {
        return words(rank_windows_[rank], layout_.descriptor_offset(session, m));
    }
    int32_t* acknowledged(uint32_t rank, uint32_t session, uint32_t m) {
        return words(rank_controls_[rank], layout_.acknowledged_offset(session, m));
    }
    int32_t* result_flag(uint32_t session, uint32_t m, uint32_t token_idx, uint32_t k) {
        return words(session_windows_[session], layout_.result_flag_offset(m, token_idx, k));
    }

  private:
    void format(Role role, uint32_t index, std::byte* control) {
        const ScheduleMode mode =
            role == Role::kFfn ? ScheduleMode::kFfn : ScheduleMode::kAttention;
        format_control(make_segment_header(layout_.geometry, test_identity(), role, index).value(),
                       mode,
                       control);
    }
    static int32_t* words(const Bytes& bytes, uint64_t offset) {
        return static_cast<int32_t*>(static_cast<void*>(bytes.get() + offset));
    }

    WindowLayout layout_;
    EventFds session_doorbells_;
    EventFds rank_doorbells_;
    std::vector<Bytes> session_windows_;
    std::vector<Bytes> session_controls_;
    std::vector<Bytes> rank_windows_;
    std::vector<Bytes> rank_controls_;
};

// One layer that every rank serves: 8 routed experts per rank as local ids 0 ... 7.
inline ExpertPlacement test_placement(uint32_t num_layers, uint32_t num_ranks) {
    const std::vector<LayerExperts> layers(num_layers, LayerExperts{8 * num_ranks, 0});
    return ExpertPlacement::round_robin(layers, num_ranks).value();
}

}  // namespace afd::schedule
