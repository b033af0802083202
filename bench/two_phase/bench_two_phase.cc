// SPDX-License-Identifier: Apache-2.0

// bench_two_phase: the two-phase dispatch, each figure against a baseline measured in the same run.
//
//   layout      phase 1 of 65,536 to 1,048,576 tokens, top-2 of 64 experts on 4 ranks, blocks of
//       1,024 tokens. ns_per_token; growth: the time per token over that of 65,536 tokens.
//   payload/H   phase 2 of top-8 batches, 256 MiB of bf16 rows of H values, from one process to
//       another through shared memory, block by block, each block announced by a flag that the
//       other process waits for. of_memcpy: the throughput over that of one memcpy a block of the
//       same bytes, from private memory, announced likewise. Both ends of the memory are warm.
// Operator and baseline alternate; ratios are of the fastest runs, since a busy neighbour only ever
// adds time.

#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "ops/tensor/workspace.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/payload.h"
#include "proto/cpu_relax.h"
#include "schedule/wait/adaptive_wait.h"
#include "schedule/wait/flag.h"

namespace afd::bench {
namespace {

constexpr size_t kRanks = 4;
constexpr size_t kExperts = 64;
constexpr size_t kLocalExperts = kExperts / kRanks;
constexpr size_t kBlockTokens = 1024;

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::vector<int32_t> random_ids(size_t count) {
    std::mt19937 engine(1);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % kExperts);
    return ids;
}

// Expert e is local expert e / kRanks of rank e % kRanks.
std::vector<int32_t> round_robin_table() {
    std::vector<int32_t> table;
    for (int32_t e = 0; e < static_cast<int32_t>(kExperts); ++e) {
        table.push_back(e % static_cast<int32_t>(kRanks));
        table.push_back(e / static_cast<int32_t>(kRanks));
    }
    return table;
}

// A batch with random routing, and what phase 1 says of it.
class Batch {
  public:
    Batch(size_t num_tokens, size_t top_k)
        : num_tokens_(num_tokens),
          top_k_(top_k),
          ids_(random_ids(num_tokens * top_k)),
          table_(round_robin_table()),
          sorted_indices_(num_tokens * top_k),
          counts_(kExperts) {
        layout_.num_ranks = kRanks;
        layout_.num_local_experts = kLocalExperts;
        layout_.block_size = kBlockTokens;
        layout_.expert_ids =
            ops::make_tensor<const void>(ids_.data(), ops::DType::kInt32, {num_tokens, top_k});
        layout_.expert_rank_table =
            ops::make_tensor<const void>(table_.data(), ops::DType::kInt32, {1, kExperts, 1, 2});
        layout_.sorted_indices = ops::make_tensor<void>(
            sorted_indices_.data(), ops::DType::kInt32, {num_tokens * top_k});
        layout_.send_counts =
            ops::make_tensor<void>(counts_.data(), ops::DType::kInt32, {kRanks, kLocalExperts});
        workspace_.reserve(ops::two_phase_layout_workspace_bytes(layout_, 1));
    }

    void analyse() {
        const auto done = ops::two_phase_layout(layout_, workspace_.bytes(), serial_);
        AFD_ASSERT(done.ok(), "%s", done.error().message.c_str());
    }

    size_t num_blocks() const { return (num_tokens_ + kBlockTokens - 1) / kBlockTokens; }
    size_t num_rows() const { return num_tokens_ * top_k_; }
    const std::vector<int32_t>& counts() const { return counts_; }

    // A request for phase 2 without rows, grants and progress.
    ops::TwoPhasePayloadRequest payload() const {
        ops::TwoPhasePayloadRequest request;
        static_cast<ops::TwoPhaseRouting&>(request) = layout_;
        request.sorted_indices =
            ops::make_tensor<const void>(sorted_indices_.data(), ops::DType::kInt32, {num_rows()});
        request.send_counts = ops::make_tensor<const void>(
            counts_.data(), ops::DType::kInt32, {kRanks, kLocalExperts});
        return request;
    }

  private:
    size_t num_tokens_;
    size_t top_k_;
    std::vector<int32_t> ids_;
    std::vector<int32_t> table_;
    std::vector<int32_t> sorted_indices_;
    std::vector<int32_t> counts_;
    ops::TwoPhaseLayoutRequest layout_;
    ops::Workspace workspace_;
    ops::SerialParallel serial_;
};

void layout(benchmark::State& state) {
    constexpr size_t kSmall = 65536;
    const auto num_tokens = static_cast<size_t>(state.range(0));
    Batch small(kSmall, 2);
    Batch large(num_tokens, 2);
    double small_s = 1e9;
    double large_s = 1e9;
    const auto run = [](Batch& batch, double& fastest_s) {
        const double start_s = now_s();
        batch.analyse();
        const double took_s = now_s() - start_s;
        fastest_s = std::min(fastest_s, took_s);
        return took_s;
    };
    for (auto _ : state) {
        run(small, small_s);
        state.SetIterationTime(run(large, large_s));
    }
    const double ns_per_token = 1e9 * large_s / static_cast<double>(num_tokens);
    state.counters["ns_per_token"] = ns_per_token;
    state.counters["growth"] = ns_per_token / (1e9 * small_s / static_cast<double>(kSmall));
}

// A process that waits for every block of `memory` and says that it saw it.
class Peer {
  public:
    struct alignas(128) Word {
        int32_t value;
        std::byte rest[124];
    };

    explicit Peer(size_t bytes) : bytes_(bytes) {
        memory_ = static_cast<std::byte*>(::mmap(nullptr,
                                                 bytes + 2 * sizeof(Word),
                                                 PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE,
                                                 -1,
                                                 0));
        AFD_ASSERT(memory_ != MAP_FAILED, "no %zu bytes", bytes);
        words_ = reinterpret_cast<Word*>(memory_ + bytes);
        pid_ = ::fork();
        if (pid_ == 0) watch();
    }
    ~Peer() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        ::munmap(memory_, bytes_ + 2 * sizeof(Word));
    }

    std::byte* memory() const { return memory_; }

    // The time of `body(block)` for every block, each announced, until the other process saw the
    // last one.
    template <typename Body>
    double seconds(size_t num_blocks, const Body& body) {
        const double start_s = now_s();
        for (size_t block = 0; block < num_blocks; ++block) {
            body(block);
            schedule::publish_release(words_[0].value, ++number_);
        }
        while (schedule::observe(words_[1].value, schedule::Order::kAcquire) != number_) {
            cpu_relax();
        }
        return now_s() - start_s;
    }

  private:
    [[noreturn]] void watch() {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int32_t seen = 0;;) {
            const int32_t sent = schedule::observe(words_[0].value, schedule::Order::kAcquire);
            if (sent == seen) {
                cpu_relax();
                continue;
            }
            seen = sent;
            schedule::publish_release(words_[1].value, seen);
        }
    }

    size_t bytes_;
    std::byte* memory_;
    Word* words_;
    pid_t pid_;
    int32_t number_ = 0;
};

void payload(benchmark::State& state) {
    constexpr size_t kBytes = size_t{256} << 20;
    constexpr size_t kTopK = 8;
    const auto hidden = static_cast<size_t>(state.range(0));
    const size_t row_bytes = 2 * hidden;
    Batch batch(kBytes / row_bytes / kTopK, kTopK);
    batch.analyse();
    std::vector<std::byte> x(batch.num_rows() / kTopK * row_bytes, std::byte{1});
    std::vector<std::byte> source(kBytes, std::byte{2});
    Peer peer(kBytes);

    // One segment behind the other, experts in order.
    std::vector<int64_t> base(kExperts);
    std::vector<int64_t> done(kExperts);
    int64_t next = 0;
    for (size_t key = 0; key < kExperts; ++key) {
        base[key] = next;
        next += batch.counts()[key];
    }
    ops::TwoPhasePayloadRequest request = batch.payload();
    request.num_blocks = 1;
    request.base =
        ops::make_tensor<const void>(base.data(), ops::DType::kInt64, {kRanks, kLocalExperts});
    request.done = ops::make_tensor<void>(done.data(), ops::DType::kInt64, {kRanks, kLocalExperts});
    request.x = ops::make_tensor<const void>(
        x.data(), ops::DType::kBf16, {batch.num_rows() / kTopK, hidden});
    request.recv_x =
        ops::make_tensor<void>(peer.memory(), ops::DType::kBf16, {batch.num_rows(), hidden});
    ops::Workspace workspace(ops::two_phase_payload_workspace_bytes(request));
    ops::SerialParallel serial;
    const auto send = [&] {
        std::fill(done.begin(), done.end(), 0);
        return peer.seconds(batch.num_blocks(), [&](size_t block) {
            request.first_block = static_cast<int64_t>(block);
            const auto sent = ops::two_phase_payload(request, workspace.bytes(), serial);
            AFD_ASSERT(sent.ok(), "%s", sent.error().message.c_str());
        });
    };
    const size_t block_bytes = kBlockTokens * kTopK * row_bytes;
    const auto copy = [&] {
        return peer.seconds(batch.num_blocks(), [&](size_t block) {
            const size_t first = block * block_bytes;
            std::memcpy(peer.memory() + first,
                        source.data() + first,
                        std::min(block_bytes, kBytes - first));
        });
    };
    copy();
    double send_s = 1e9;
    double copy_s = 1e9;
    for (auto _ : state) {
        const double took_s = send();
        send_s = std::min(send_s, took_s);
        copy_s = std::min(copy_s, copy());
        state.SetIterationTime(took_s);
    }
    state.counters["gbytes_per_s"] = static_cast<double>(kBytes) / send_s / 1e9;
    state.counters["of_memcpy"] = copy_s / send_s;
}

BENCHMARK(layout)
    ->RangeMultiplier(4)
    ->Range(65536, 1048576)
    ->UseManualTime()
    ->Iterations(30)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(payload)->Arg(512)->Arg(2048)->Arg(7168)->UseManualTime()->Iterations(15)->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace afd::bench

BENCHMARK_MAIN();
