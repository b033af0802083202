// SPDX-License-Identifier: Apache-2.0

// bench_ops_attention: decode attention over the latent cache against this core's limits.
//
//   attention/<class>/<model>/context:<S>     one token, all heads, one thread
// Counters: cache GB/s read (each token's cache rows once) and of_read, its ratio to the measured
// read bandwidth; GFLOP/s of scores and weighted sums, and of_peak, its ratio to the multiply-add
// rate. Contexts rotate over 64 MiB of cache, so rows come from memory as in serving.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "ops/mla_attention.h"
#include "ops/workspace.h"

namespace afd::bench {
namespace {

constexpr size_t kCacheBytes = size_t{64} << 20;

struct Model {
    const char* name;
    ops::MlaShape shape;
};

// The demo model, and the attention of a 16 B and a 671 B model of the DeepSeek family.
const Model kModels[] = {
    {"demo", {192, 0, 64, 4, 32, 16, 32}},
    {"lite", {2048, 0, 512, 16, 128, 64, 128}},
    {"large", {7168, 1536, 512, 128, 128, 64, 128}},
};

std::vector<ops::Bf16> random_values(size_t count) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::vector<ops::Bf16> values(count);
    for (ops::Bf16& value : values) value = ops::from_float(normal(engine));
    return values;
}

void run_attention(benchmark::State& state,
                   double peak,
                   double read,
                   ops::NumericClass numeric_class,
                   const Model& model,
                   size_t context) {
    const ops::MlaShape& s = model.shape;
    ops::MlaWeights weights;
    weights.shape = s;
    weights.softmax_scale = 0.05f;
    const size_t kv_b_rows = s.num_heads * (s.qk_nope_head_dim + s.v_head_dim);
    const std::vector<ops::Bf16> kv_b = random_values(kv_b_rows * s.kv_lora_rank);
    ops::pack_kv_b_proj(
        ops::make_rows(kv_b.data(), kv_b_rows, s.kv_lora_rank), numeric_class, weights);
    const size_t row_bytes = (s.kv_lora_rank + s.qk_rope_head_dim) * sizeof(ops::Bf16);
    const size_t blocks_per_sequence = context / ops::kAttentionBlock;
    const size_t num_sequences = kCacheBytes / (context * row_bytes) + 1;
    const size_t num_slots = num_sequences * context;
    std::vector<ops::Bf16> ckv = random_values(num_slots * s.kv_lora_rank);
    std::vector<ops::Bf16> kr = random_values(num_slots * s.qk_rope_head_dim);
    const std::vector<ops::Bf16> query = random_values(s.num_heads * s.kv_lora_rank);
    const std::vector<ops::Bf16> query_rope = random_values(s.num_heads * s.qk_rope_head_dim);
    std::vector<ops::Bf16> out(s.num_heads * s.v_head_dim);
    const ops::Workspace workspace(ops::mla_attention_workspace_bytes(s, 1, 1));
    const auto position = static_cast<int32_t>(context - 1);
    std::vector<int32_t> table(blocks_per_sequence);
    ops::SerialParallel serial;
    size_t sequence = 0;
    for (auto _ : state) {
        for (size_t i = 0; i < blocks_per_sequence; ++i) {
            table[i] = static_cast<int32_t>(sequence * blocks_per_sequence + i);
        }
        sequence = (sequence + 1) % num_sequences;
        const int32_t* tables[] = {table.data()};
        const auto result = ops::mla_attention(
            {.weights = &weights,
             .query = ops::make_rows(query.data(), 1, query.size()),
             .query_rope = ops::make_rows(query_rope.data(), 1, query_rope.size()),
             .batch = {1, &position, nullptr, tables},
             .cache = {ckv.data(), kr.data(), num_slots},
             .out = ops::make_rows(out.data(), 1, out.size())},
            workspace.bytes(),
            serial);
        if (!result.ok()) state.SkipWithError(result.error().message.c_str());
        benchmark::ClobberMemory();
    }
    using benchmark::Counter;
    const double gbytes = 1e-9 * static_cast<double>(context * row_bytes);
    const double gflop = 2e-9 * static_cast<double>(context * s.num_heads *
                                                    (2 * s.kv_lora_rank + s.qk_rope_head_dim));
    state.counters["GB/s"] = Counter(gbytes, Counter::kIsIterationInvariantRate);
    state.counters["of_read"] = Counter(gbytes / read, Counter::kIsIterationInvariantRate);
    state.counters["GFLOP/s"] = Counter(gflop, Counter::kIsIterationInvariantRate);
    state.counters["of_peak"] = Counter(gflop / peak, Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    afd::ops::SerialParallel one;
    const double peak = afd::bench::bf16_gflops(one);
    const double read = afd::bench::read_gbytes_per_s(one);
    std::printf("this core: %.0f GFLOP/s multiply-add, %.1f GB/s read\n", peak, read);
    for (const auto numeric_class : afd::ops::supported_numeric_classes()) {
        for (const auto& model : afd::bench::kModels) {
            for (const size_t context : {256, 4096}) {
                const std::string name = "attention/" +
                                         std::string(afd::ops::name_of(numeric_class)) + "/" +
                                         model.name + "/context:" + std::to_string(context);
                benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
                    afd::bench::run_attention(state, peak, read, numeric_class, model, context);
                });
            }
        }
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
