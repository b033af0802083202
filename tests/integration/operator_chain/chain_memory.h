// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChainMemory: the shared memory of a chain that is made of the stand-alone operators only, and the
// numbers of its model (tests/daemon/lanes/random_moe.h, MoE layers alone).
//
// The operators move rows, count every flag that is not 0 as ready and clear none. Whoever drives
// them agrees on the rest, the simplest way there is:
//
//   attention worker   waits until its descriptors are 0; AttentionToFFN sets them to 1
//   FFN worker         FfnWorkerBatching copies the rows; sets the descriptors it took to 0;
//                      computes; FFNToAttention sets the result flags to 1
//   attention worker   AttentionWorkerCombine; sets the result flags of the micro-batch to 0
//
// That has no answer to a killed process; the rules R1 to R12 (docs/protocol.md) have.

#include <array>
#include <string>
#include <vector>

#include "schedule/context/context_words.h"
#include "schedule/context/control_view.h"
#include "schedule/context/fresh_memory.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/wait/flag.h"
#include "tests/daemon/lanes/random_moe.h"

namespace afd::test {

inline constexpr uint32_t kSessions = 2;
inline constexpr uint32_t kRanks = 2;
inline constexpr uint32_t kMicroBatches = 2;
inline constexpr uint32_t kTokensMax = 8;
inline constexpr uint32_t kSlots = daemon::kTopK + 1;

inline schedule::WindowLayout chain_layout() {
    return schedule::WindowLayout::compute({.num_sessions = kSessions,
                                            .num_micro_batches = kMicroBatches,
                                            .micro_batch_size = kTokensMax,
                                            .selected_expert_num = kSlots,
                                            .num_experts = daemon::kPerLayer,
                                            .attn_to_ffn_token_bytes = 512,
                                            .ffn_to_attn_token_bytes = 512,
                                            .num_ffn_workers = kRanks})
        .value();
}

// The seed of a session's `number`-th call (daemon::Call): those of MoE layers, because the
// operators send the shared expert's slot of every token, and a dense layer has none.
inline uint32_t seed_of_call(uint32_t session, uint32_t number) {
    for (uint32_t seed = 100000 * session;; ++seed) {
        std::mt19937 random(seed);
        random.discard(1);
        if (random() % daemon::kLayers != 0 && number-- == 0) return seed;
    }
}

// [L, E + S, R, 2]: rank and local id of every replica; rank -1 where there are no more.
inline std::vector<int32_t> rank_table() {
    const schedule::ExpertPlacement placement = daemon::placement_of(kRanks);
    std::vector<int32_t> table(size_t{daemon::kLayers} * daemon::kPerLayer * kRanks * 2, -1);
    for (uint32_t layer = 0; layer < daemon::kLayers; ++layer) {
        for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
            const auto replicas = placement.replicas(layer, expert);
            for (size_t r = 0; r < replicas.size(); ++r) {
                const size_t at = ((layer * daemon::kPerLayer + expert) * kRanks + r) * 2;
                table[at] = static_cast<int32_t>(replicas[r].rank);
                table[at + 1] = replicas[r].local_id;
            }
        }
    }
    return table;
}

class ChainMemory {
  public:
    // The creator's: new segments, formatted as afdd does it. Unlinked at the end of the object.
    static ChainMemory create(const std::string& prefix) { return ChainMemory(prefix, true); }
    // A worker's: everything mapped. Aborts if anything is missing.
    static ChainMemory attach(const std::string& prefix) { return ChainMemory(prefix, false); }

    ChainMemory(ChainMemory&&) = default;
    ~ChainMemory() {
        if (!is_creator_) return;
        for (const schedule::Segment& segment : segments_) {
            if (segment.size() != 0) schedule::Segment::unlink(segment.name());
        }
    }

    std::span<std::byte> ffn_window(uint32_t rank) const { return bytes(rank); }
    std::span<std::byte> ffn_control(uint32_t rank) const { return bytes(kRanks + rank); }
    std::span<std::byte> attention_window(uint32_t session) const {
        return bytes(2 * kRanks + session);
    }
    std::span<std::byte> attention_control(uint32_t session) const {
        return bytes(2 * kRanks + kSessions + session);
    }
    static schedule::ScheduleContext& context(std::span<std::byte> control) {
        return schedule::ControlView(control.data()).context();
    }

    // The flag of a descriptor, and of a result slot.
    int32_t& descriptor_flag(uint32_t rank, uint32_t session, uint32_t micro_batch) const {
        return word(ffn_window(rank), layout_.descriptor_offset(session, micro_batch));
    }
    int32_t& result_flag(uint32_t session, uint32_t micro_batch, uint32_t token, uint32_t k) const {
        return word(attention_window(session), layout_.result_flag_offset(micro_batch, token, k));
    }

  private:
    ChainMemory(const std::string& prefix, bool create)
        : layout_(chain_layout()), is_creator_(create) {
        using schedule::Role;
        using schedule::SegmentKind;
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            open(schedule::segment_name(prefix, Role::kFfn, rank, SegmentKind::kWindow),
                 layout_.ffn_window.total_bytes);
        }
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            open(schedule::segment_name(prefix, Role::kFfn, rank, SegmentKind::kControl),
                 layout_.ffn_control.total_bytes);
        }
        for (uint32_t session = 0; session < kSessions; ++session) {
            open(schedule::segment_name(prefix, Role::kAttention, session, SegmentKind::kWindow),
                 layout_.attention_window.total_bytes);
        }
        for (uint32_t session = 0; session < kSessions; ++session) {
            open(schedule::segment_name(prefix, Role::kAttention, session, SegmentKind::kControl),
                 layout_.attention_control_bytes);
        }
        if (create) format();
    }

    void open(const std::string& name, uint64_t size_bytes) {
        auto segment = is_creator_ ? schedule::Segment::create(name, size_bytes)
                                   : schedule::Segment::attach(
                                         name, size_bytes, schedule::Segment::Access::kReadWrite);
        AFD_ASSERT(segment.ok(), "%s", segment.error().message.c_str());
        segments_.push_back(std::move(segment).value());
    }

    void format() const {
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            schedule::format_ffn_window(layout_, ffn_window(rank).data());
            context(ffn_control(rank)) =
                schedule::make_schedule_context(layout_.geometry, schedule::ScheduleMode::kFfn);
        }
        for (uint32_t session = 0; session < kSessions; ++session) {
            context(attention_control(session)) = schedule::make_schedule_context(
                layout_.geometry, schedule::ScheduleMode::kAttention);
        }
    }

    std::span<std::byte> bytes(size_t index) const {
        return {segments_[index].data(), segments_[index].size()};
    }
    static int32_t& word(std::span<std::byte> bytes, uint64_t offset) {
        return *static_cast<int32_t*>(static_cast<void*>(bytes.data() + offset));
    }

    schedule::WindowLayout layout_;
    bool is_creator_;
    std::vector<schedule::Segment> segments_;
};

}  // namespace afd::test
