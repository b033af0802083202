// SPDX-License-Identifier: Apache-2.0

// bench_routing: the operators that move rows, each against a baseline measured in the same run.
//
//   ffn_worker_batching, moe_init_routing_v3   A=16, BS=128, K1=9, H=7168 bf16. of_gather: time
//       over that of one std::memcpy a row, same rows, same order, same buffers.
//   sort/threads:2   1 Mi (token, k) pairs over 256 experts. stable_sort: std::stable_sort of the
//       same pairs over its time; scaling: one thread's time over it; machine: the same for a loop
//       in registers, which nothing but the processor limits (two virtual cores may be one core).
//   quantise   256 MiB of bf16 rows to int8. of_copy: time over that of a loop that reads and
//       writes the same bytes; of_memcpy: over that of a memcpy of as many bytes in all.
// Operator and baseline alternate; ratios are of the fastest runs, since a busy neighbour only ever
// adds time. Buffers of the operators on rows are larger than any cache.

#include <benchmark/benchmark.h>

#include <boost/align/aligned_allocator.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/experts/expert_sort.h"
#include "ops/linear/quantise.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/tensor/workspace.h"
#include "schedule/context/schedule_context.h"
#include "threads/thread_pool.h"

namespace afd::bench {
namespace {

constexpr size_t kSessions = 16;
constexpr size_t kTokens = 128;
constexpr size_t kSlots = 9;
constexpr size_t kHidden = 7168;
constexpr size_t kRowBytes = 2 * kHidden;
constexpr size_t kRows = kSessions * kTokens * kSlots;
constexpr int32_t kExperts = 256;

// Aligned as tensors are.
using Bytes = std::vector<std::byte, boost::alignment::aligned_allocator<std::byte, 64>>;

Bytes filled_bytes(size_t size) {
    Bytes bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
    return bytes;
}

std::vector<int32_t> random_ids(size_t count) {
    std::mt19937 engine(1);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % kExperts);
    return ids;
}

template <typename Body>
double seconds_of(const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Alternates the operator and its baselines; times[0] is the operator's. Each runs once untimed
// first, so that none pays for what the one before left in the caches.
template <typename... Bodies>
std::vector<double> fastest(benchmark::State& state, const Bodies&... bodies) {
    std::vector<std::vector<double>> times(sizeof...(Bodies));
    for (auto _ : state) {
        size_t i = 0;
        ((bodies(), times[i++].push_back(seconds_of(bodies))), ...);
        state.SetIterationTime(times[0].back());
    }
    std::vector<double> result;
    for (const auto& list : times) {
        result.push_back(*std::min_element(list.begin(), list.end()));
    }
    return result;
}

// The rows of `order`, one memcpy each.
void gather(const Bytes& source, const std::vector<int32_t>& order, size_t divisor, Bytes& target) {
    for (size_t i = 0; i < order.size(); ++i) {
        std::memcpy(target.data() + i * kRowBytes,
                    source.data() + static_cast<size_t>(order[i]) / divisor * kRowBytes,
                    kRowBytes);
    }
}

std::vector<int32_t> sorted_order(const std::vector<int32_t>& ids) {
    std::vector<int32_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
    });
    return order;
}

void run_ffn_worker_batching(benchmark::State& state) {
    const Bytes window = filled_bytes(kRows * kRowBytes);
    Bytes y(kRows * kRowBytes);
    std::vector<int32_t> ids = random_ids(kRows);
    const std::vector<int32_t> order = sorted_order(ids);
    std::vector<int32_t> control(2 * kSessions);
    for (size_t i = 0; i < kSessions; ++i) control[i] = static_cast<int32_t>(i);
    control.insert(control.end(), ids.begin(), ids.end());
    schedule::ScheduleContext context{};
    context.common = {kSessions, 1, kTokens, kSlots, kExperts, kRowBytes, kRowBytes, 0, {}};
    context.ffn.token_data_buf_size = window.size();
    context.ffn.session_ids_buf_size = context.ffn.micro_batch_ids_buf_size = kSessions * 4;
    context.ffn.micro_batch_ids_buf = kSessions * 4;
    context.ffn.expert_ids_buf = 2 * kSessions * 4;
    context.ffn.expert_ids_buf_size = kRows * 4;
    context.ffn.out_num = kSessions;
    const ops::FfnWorkerBatchingAttributes attributes{
        .expert_num = kExperts,
        .max_out_shape = {kSessions, kTokens, kSlots, kHidden},
        .token_dtype = ops::TokenDtype::kBf16};
    std::vector<int64_t> groups(2 * kExperts);
    std::vector<int32_t> lists[4];
    for (auto& list : lists) list.resize(kRows);
    ops::FfnWorkerBatchingOutput output{.y = y,
                                        .group_list = groups,
                                        .session_ids = lists[0],
                                        .micro_batch_ids = lists[1],
                                        .token_ids = lists[2],
                                        .expert_offsets = lists[3],
                                        .dynamic_scale = {}};
    const ops::Workspace workspace(ops::ffn_worker_batching_workspace_bytes(attributes));
    ops::SerialParallel serial;
    const auto times = fastest(
        state,
        [&] {
            const auto result = ops::ffn_worker_batching(
                {.attributes = attributes,
                 .context = &context,
                 .window = window,
                 .control = std::as_writable_bytes(std::span<int32_t>(control))},
                output,
                workspace.bytes(),
                serial);
            if (!result.ok()) state.SkipWithError(result.error().message.c_str());
        },
        [&] { gather(window, order, 1, y); });
    state.counters["of_gather"] = times[0] / times[1];
}

void run_moe_init_routing(benchmark::State& state) {
    const Bytes x = filled_bytes(kSessions * kTokens * kRowBytes);
    Bytes expanded(kRows * kRowBytes);
    const std::vector<int32_t> ids = random_ids(kRows);
    const std::vector<int32_t> order = sorted_order(ids);
    std::vector<int32_t> row_idx(kRows);
    std::vector<int64_t> counts(kExperts);
    ops::MoeInitRoutingV3Request request;
    request.expert_num = kExperts;
    request.expert_tokens_num_type = 1;
    request.expert_tokens_num_flag = true;
    request.x =
        ops::make_tensor<const void>(x.data(), ops::DType::kBf16, {kSessions * kTokens, kHidden});
    request.expert_idx =
        ops::make_tensor<const void>(ids.data(), ops::DType::kInt32, {kSessions * kTokens, kSlots});
    request.expanded_x =
        ops::make_tensor<void>(expanded.data(), ops::DType::kBf16, {kRows, kHidden});
    request.expanded_row_idx = ops::make_tensor<void>(row_idx.data(), ops::DType::kInt32, {kRows});
    request.expert_tokens_count_or_cumsum =
        ops::make_tensor<void>(counts.data(), ops::DType::kInt64, {counts.size()});
    const ops::Workspace workspace(
        ops::moe_init_routing_v3_workspace_bytes(kSessions * kTokens, kSlots, kExperts));
    ops::SerialParallel serial;
    const auto times = fastest(
        state,
        [&] {
            const auto result = ops::moe_init_routing_v3(request, workspace.bytes(), serial);
            if (!result.ok()) state.SkipWithError(result.error().message.c_str());
        },
        [&] { gather(x, order, kSlots, expanded); });
    state.counters["of_gather"] = times[0] / times[1];
}

// Arithmetic in registers that keeps the core's units busy, about as long as the sort.
void count_in_registers() {
    uint64_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 200'000; ++i) {
        for (uint64_t& value : values) value = (value ^ (value >> 7)) + (value << 3);
    }
    benchmark::DoNotOptimize(values);
}

void run_sort(benchmark::State& state) {
    constexpr size_t kPairs = size_t{1} << 20;
    const std::vector<int32_t> ids = random_ids(kPairs);
    std::vector<int32_t> order(kPairs);
    std::vector<int32_t> library_order(kPairs);
    std::vector<ops::ExpertGroup> groups(kExperts);
    std::vector<int32_t> scratch(ops::expert_sort_scratch(kPairs, kExperts));
    // Awake between two calls, as the threads of a busy worker are.
    constexpr uint32_t kSpinUs = 5000;
    threads::ThreadPool pool(static_cast<unsigned>(state.range(0)), kSpinUs, false, {});
    ops::SerialParallel serial;
    const auto sort_with = [&](ops::Parallel& parallel) {
        ops::sort_by_expert(
            ids, kExperts, scratch.data(), order.data(), nullptr, groups.data(), parallel);
    };
    double library_seconds = 1e9;
    for (int i = 0; i < 3; ++i) {
        std::iota(library_order.begin(), library_order.end(), 0);
        const double seconds = seconds_of([&] {
            std::stable_sort(library_order.begin(), library_order.end(), [&](int32_t a, int32_t b) {
                return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
            });
        });
        library_seconds = std::min(library_seconds, seconds);
    }
    const auto times = fastest(
        state,
        [&] { sort_with(pool); },
        [&] { sort_with(serial); },
        [&] { pool.run(2, [](size_t, unsigned) { count_in_registers(); }); },
        [&] { serial.run(2, [](size_t, unsigned) { count_in_registers(); }); });
    state.counters["machine"] = times[3] / times[2];
    state.counters["stable_sort"] = library_seconds / times[0];
    state.counters["scaling"] = times[1] / times[0];
    if (order != library_order) state.SkipWithError("the order is not that of std::stable_sort");
}

// Reads two bytes and writes one for each value, with no arithmetic to speak of.
void copy_high_bytes(const Bytes& source, Bytes& target) {
    const auto* in = reinterpret_cast<const uint16_t*>(source.data());
    auto* out = reinterpret_cast<uint8_t*>(target.data());
    for (size_t i = 0; i < target.size(); ++i) out[i] = static_cast<uint8_t>(in[i] >> 8);
}

void run_quantise(benchmark::State& state) {
    constexpr size_t kQuantisedRows = (size_t{256} << 20) / kRowBytes;
    constexpr size_t kValues = kQuantisedRows * kHidden;
    Bytes x(2 * kValues);
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::vector<ops::Bf16> pool(1 << 20);
    for (ops::Bf16& value : pool) value = ops::from_float(normal(engine));
    for (size_t i = 0; i < kValues; ++i) {
        std::memcpy(x.data() + 2 * i, &pool[(i * 7 + i / 1000) % pool.size()], 2);
    }
    Bytes q(kValues);
    std::vector<float> scale(kQuantisedRows);
    const Bytes copy_source = filled_bytes(3 * kValues / 2);
    Bytes copy_target(3 * kValues / 2);
    ops::SerialParallel serial;
    const auto times = fastest(
        state,
        [&] {
            ops::quantise_rows({.x = ops::make_tensor<const void>(
                                    x.data(), ops::DType::kBf16, {kQuantisedRows, kHidden}),
                                .q = reinterpret_cast<int8_t*>(q.data()),
                                .scale = scale.data()},
                               serial);
        },
        [&] { copy_high_bytes(x, q); },
        [&] { std::memcpy(copy_target.data(), copy_source.data(), copy_source.size()); });
    state.counters["of_copy"] = times[0] / times[1];
    state.counters["of_memcpy"] = times[0] / times[2];
    state.counters["GB/s"] = 3e-9 * static_cast<double>(kValues) / times[0];
}

BENCHMARK(run_ffn_worker_batching)
    ->Name("ffn_worker_batching")
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(run_moe_init_routing)
    ->Name("moe_init_routing_v3")
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(run_sort)
    ->Name("sort")
    ->ArgName("threads")
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(200)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(run_quantise)
    ->Name("quantise")
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace afd::bench

BENCHMARK_MAIN();
