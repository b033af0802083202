// SPDX-License-Identifier: Apache-2.0
//
// Goal: a batch of 131,072 tokens needs no more memory at its receivers than what arrives there.
// Method: the real dispatch path between processes: this one is the session and, in a thread, afdd;
// three FFN workers are forked. Synthetic routing: top-8 of 63 experts, H = 512, the first worker
// gets four times the rows of each other. Segments are measured in /dev/shm while the round runs,
// the workers' growth by VmHWM.
// Oracle: rows * 1024 bytes, times 1.02, plus 1 MiB; and for sampled tokens the bits of the local
// composition, so that what was measured is a round that works.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include "daemon/lanes/remote_two_phase.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "schedule/shared_memory/instance_segments.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/daemon/lanes/two_phase_process.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kTokens = 131072;
constexpr uint32_t kTopK = 8;
constexpr uint32_t kHidden = 512;
constexpr uint32_t kRanks = 3;
constexpr uint32_t kExperts = 63;
constexpr uint64_t kRowBytes = kHidden * sizeof(ops::Bf16);
constexpr schedule::TwoPhaseCall kCall{
    .num_tokens = kTokens, .block_tokens = 1024, .selected_expert_num = kTopK};

using Matrix = std::vector<ops::Bf16>;

Matrix random_matrix(size_t rows, size_t cols, uint32_t seed) {
    std::mt19937 random(seed);
    Matrix matrix(rows * cols);
    for (ops::Bf16& value : matrix) {
        value = ops::from_float(static_cast<float>(random() % 2000) / 4000.0F - 0.25F);
    }
    return matrix;
}

ops::PackedExpert make_expert(uint32_t expert) {
    constexpr uint32_t kIntermediate = 16;
    const Matrix gate = random_matrix(kIntermediate, kHidden, 3 * expert + 1);
    const Matrix up = random_matrix(kIntermediate, kHidden, 3 * expert + 2);
    const Matrix down = random_matrix(kHidden, kIntermediate, 3 * expert + 3);
    return ops::pack_expert(ops::make_rows(gate.data(), kIntermediate, kHidden),
                            ops::make_rows(up.data(), kIntermediate, kHidden),
                            ops::make_rows(down.data(), kHidden, kIntermediate),
                            ops::best_numeric_class());
}

schedule::Geometry geometry() {
    return {.num_sessions = 1,
            .num_micro_batches = 1,
            .micro_batch_size = 1,
            .selected_expert_num = kTopK,
            .num_experts = kExperts,
            .attn_to_ffn_token_bytes = kRowBytes,
            .ffn_to_attn_token_bytes = kRowBytes,
            .num_ffn_workers = kRanks};
}

schedule::ExpertPlacement placement() {
    return schedule::ExpertPlacement::round_robin(
               std::vector<schedule::LayerExperts>{{kExperts, 0}}, kRanks)
        .value();
}

// Of every six slots four go to rank 0, which holds the experts 0, 3, 6, ...
std::vector<int32_t> skewed_ids() {
    constexpr std::array<int32_t, 6> kRankOf = {0, 1, 0, 0, 2, 0};
    std::mt19937 random(5);
    std::vector<int32_t> ids(size_t{kTokens} * kTopK);
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = kRankOf[i % 6] + static_cast<int32_t>(kRanks * (random() % (kExperts / kRanks)));
    }
    return ids;
}

// The most memory that a process has had, VmHWM, in bytes.
uint64_t peak_bytes(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string word; status >> word;) {
        uint64_t kib = 0;
        if (word == "VmHWM:" && status >> kib) return kib * 1024;
    }
    return 0;
}

uint64_t file_bytes(const std::string& segment) {
    struct stat file {};
    return ::stat(("/dev/shm" + segment).c_str(), &file) == 0 ? static_cast<uint64_t>(file.st_size)
                                                              : 0;
}

const schedule::InstanceIdentity kIdentity{1, "model", "class"};

// Both sides poll: nobody sleeps on the one doorbell that stands for all.
schedule::AttachConfig attach_config(const std::string& prefix,
                                     const schedule::WindowLayout& layout,
                                     size_t num_peers) {
    static const schedule::EventFds silent(1);
    return {prefix, layout, kIdentity, silent[0], std::vector<int>(num_peers, silent[0])};
}

// A worker's life.
[[noreturn]] void run_rank(const schedule::AttachConfig& config,
                           uint32_t rank,
                           const RankPipes& pipes) {
    const schedule::ExpertPlacement experts_of = placement();
    const uint32_t per_layer = experts_of.num_local_experts_per_layer(rank);
    ops::ExpertTable table(per_layer, kHidden);
    for (const schedule::HeldExpert& local : experts_of.held_experts(rank)) {
        table.set(static_cast<size_t>(local.local_id), make_expert(local.expert));
    }
    ops::GroupedExperts experts(table, per_layer);
    run_rank_process({.config = config,
                      .placement = &experts_of,
                      .rank = rank,
                      .hidden = kHidden,
                      .call = kCall,
                      .experts = &experts,
                      .pipes = pipes,
                      .wait = [](const TwoPhaseExperts&, schedule::Doorbell) { ::usleep(50); }});
}

class TwoPhaseMemory : public testing::Test {
  protected:
    struct Worker {
        pid_t pid = -1;
        RankPipes pipes;
    };

    TwoPhaseMemory()
        : layout_(schedule::WindowLayout::compute(geometry()).value()),
          prefix_(schedule::segment_prefix("memory_test", static_cast<uint64_t>(::getpid()))),
          segments_(schedule::InstanceSegments::create(prefix_, layout_, kIdentity).value()),
          round_segments_(
              prefix_,
              1,
              0,
              schedule::two_phase_sizes_max(kCall, kExperts / kRanks, {kRowBytes, kRowBytes})) {
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
            Worker& worker = workers_[rank];
            EXPECT_TRUE(worker.pipes.open());
            worker.pid = ::fork();
            if (worker.pid == 0) run_rank(attach_config(prefix_, layout_, 1), rank, worker.pipes);
        }
        afdd_ = std::thread([this] { serve(); });
    }
    ~TwoPhaseMemory() override {
        is_over_.store(true, std::memory_order_relaxed);
        afdd_.join();
        for (Worker& worker : workers_) {
            ::kill(worker.pid, SIGKILL);
            ::waitpid(worker.pid, nullptr, 0);
            worker.pipes.close();
        }
    }

    void serve() {
        // Relaxed: a flag that orders nothing.
        while (!is_over_.load(std::memory_order_relaxed)) {
            for (uint32_t rank = 0; rank < kRanks; ++rank) {
                pollfd ready{workers_[rank].pipes.requests[0], POLLIN, 0};
                WorkerEvent event;
                if (::poll(&ready, 1, 1) <= 0 ||
                    ::read(ready.fd, &event, sizeof(event)) != sizeof(event)) {
                    continue;
                }
                if (serve_rank(round_segments_, rank, event, workers_[rank].pipes)) {
                    num_released_.fetch_add(1, std::memory_order_relaxed);
                }
            }
        }
    }

    schedule::WindowLayout layout_;
    std::string prefix_;
    schedule::InstanceSegments segments_;
    TwoPhaseSegments round_segments_;
    std::array<Worker, kRanks> workers_;
    std::atomic<bool> is_over_{false};
    std::atomic<uint32_t> num_released_{0};
    std::thread afdd_;
};

// The layer's bits for one token, computed in this process.
std::vector<uint16_t> local_bits(const ops::MoeInput& input,
                                 uint32_t token,
                                 const ops::ExpertTable& table) {
    const ops::FusedMoeConfig config{
        .hidden = kHidden, .num_experts = kExperts, .top_k = kTopK, .max_num_tokens = 1};
    ops::SerialParallel serial;
    ops::LocalPrepareFinalize prepare_finalize(config, serial);
    ops::GroupedExperts experts(table, kExperts);
    auto moe = ops::FusedMoe::compose(prepare_finalize, experts, config, serial);
    ops::MoeInput one = input;
    one.x = input.x.slice(token, 1);
    one.num_tokens = 1;
    one.topk_ids += size_t{token} * kTopK;
    one.topk_weights += size_t{token} * kTopK;
    Matrix out(kHidden);
    EXPECT_TRUE(moe.value().apply(one, ops::make_rows(out.data(), 1, kHidden)).ok());
    std::vector<uint16_t> bits;
    for (const ops::Bf16 value : out) bits.push_back(value.bits);
    return bits;
}

TEST_F(TwoPhaseMemory, IsWhatArrivesWhateverTheSkew) {
    const Matrix x = random_matrix(kTokens, kHidden, 1);
    const std::vector<int32_t> ids = skewed_ids();
    const std::vector<float> weights(ids.size(), 0.125F);
    const ops::MoeInput input{.x = ops::make_rows(x.data(), kTokens, kHidden),
                              .num_tokens = kTokens,
                              .top_k = kTopK,
                              .topk_ids = ids.data(),
                              .topk_weights = weights.data()};
    std::array<uint64_t, kRanks> exact_bytes{};
    for (const int32_t id : ids) exact_bytes[static_cast<size_t>(id) % kRanks] += kRowBytes;
    ASSERT_NEAR(static_cast<double>(exact_bytes[0]) / static_cast<double>(exact_bytes[1]), 4, 1e-3);

    const schedule::ExpertPlacement experts_of = placement();
    ops::SerialParallel serial;
    const auto windows =
        schedule::attach_dispatch(attach_config(prefix_, layout_, kRanks), 0).value();
    const auto transport = windows->two_phase().value();
    schedule::TwoPhaseSender sender(*transport);
    RemoteTwoPhase part({.hidden = kHidden,
                         .top_k = kTopK,
                         .num_tokens_max = kTokens,
                         .block_tokens = kCall.block_tokens},
                        {.sender = &sender, .placement = &experts_of, .parallel = &serial});
    Matrix out(size_t{kTokens} * kHidden);
    part.expect_output(ops::make_rows(out.data(), kTokens, kHidden));
    std::array<uint64_t, kRanks> before{};
    for (uint32_t rank = 0; rank < kRanks; ++rank) before[rank] = peak_bytes(workers_[rank].pid);

    auto ticket = part.prepare_async(input, 0);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    std::array<uint64_t, kRanks> segment_bytes{};
    const uint64_t deadline_us = schedule::steady_now_us() + 120'000'000;
    while (!part.finalized(ticket.value())) {
        ASSERT_LT(schedule::steady_now_us(), deadline_us);
        if (!part.advance()) ::usleep(50);
    }
    // All of the round's memory is there until it is closed.
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        for (const auto segment :
             {schedule::TwoPhaseSegment::kReceive, schedule::TwoPhaseSegment::kReturn}) {
            segment_bytes[rank] += file_bytes(
                schedule::two_phase_segment_name(prefix_, segment, rank, 0, sender.round()));
        }
    }
    std::array<uint64_t, kRanks> grown{};
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        grown[rank] = peak_bytes(workers_[rank].pid) - before[rank];
    }
    const auto finished =
        part.finalize(std::move(ticket).value(),
                      ops::top_k_weight_and_reduce(ops::WeightAndReduceKind::kDelegate),
                      ops::make_rows(out.data(), kTokens, kHidden),
                      serial);
    ASSERT_TRUE(finished.ok()) << finished.error().message;

    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const uint64_t limit = exact_bytes[rank] + exact_bytes[rank] / 50 + (1 << 20);
        std::cout << "ffn rank " << rank << ": exact " << exact_bytes[rank] << ", segments "
                  << segment_bytes[rank] << ", peak growth " << grown[rank] << ", limit " << limit
                  << ", static alternative " << ids.size() * kRowBytes << " bytes\n";
        EXPECT_GE(segment_bytes[rank], exact_bytes[rank]);
        EXPECT_LE(segment_bytes[rank], limit);
        EXPECT_GE(grown[rank], exact_bytes[rank] / 2) << "the rows did not arrive there";
        EXPECT_LE(grown[rank], limit);
    }

    ops::ExpertTable table(kExperts, kHidden);
    for (uint32_t expert = 0; expert < kExperts; ++expert) table.set(expert, make_expert(expert));
    for (uint32_t token = 0; token < kTokens; token += 6007) {
        std::vector<uint16_t> bits;
        for (uint32_t h = 0; h < kHidden; ++h)
            bits.push_back(out[size_t{token} * kHidden + h].bits);
        ASSERT_EQ(bits, local_bits(input, token, table)) << "token " << token;
    }
    while (num_released_.load(std::memory_order_relaxed) < kRanks) {
        ASSERT_LT(schedule::steady_now_us(), deadline_us) << "memory was not given back";
        ::usleep(1000);
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(round_segments_.bytes_of(rank), 0U);
}

}  // namespace
}  // namespace afd::daemon
