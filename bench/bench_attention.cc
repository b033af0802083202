// SPDX-License-Identifier: Apache-2.0

// bench_attention [--filter TEXT]: attention, head and sampling against the limits of this machine.
//
//   decode/<model>/context:<S>/threads:<T>   one token of each of T sequences, over latent caches
//       that together are larger than four times the last-level cache. ratio: time divided by
//       max(bytes of cache and weights / read bandwidth, operations / bf16 peak); at most 1.3.
//   prefill/<model>/threads:<T>              512 tokens through the whole attention block: norm,
//       prolog, attention, output projection, residual. ratio: operations a second divided by the
//       bf16 peak; to be at least 0.6.
//   head/..., sample/...                     32 rows through lm_head, and the choice of one token
//       of each row. ratio: sampling divided by the head on as many threads.
// Limits are those of the T threads together. A case is several rounds of read bandwidth, bf16 peak
// and our own work right after one another; every figure is the median of the rounds. The last
// column is the flag's round trip before and after: it moves with the virtual cores
// (flag_round_trip.h).

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/flag_round_trip.h"
#include "bench/limit_steps.h"
#include "daemon/cpu_plan.h"
#include "daemon/thread_pool.h"
#include "model/kv_cache.h"
#include "model/sampler.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prolog.h"
#include "ops/rms_norm.h"
#include "ops/workspace.h"
#include "schedule/adaptive_wait.h"

namespace afd::bench {
namespace {

using ops::Bf16;
using ops::MlaShape;

struct Model {
    const char* name;
    MlaShape shape;
};

// bench_decode.py's checkpoint, and the attention of a 16 B and a 671 B model of the DeepSeek
// family.
const Model kModels[] = {
    {"medium", {1024, 384, 256, 16, 64, 32, 64}},
    {"lite", {2048, 0, 512, 16, 128, 64, 128}},
    {"large", {7168, 1536, 512, 128, 128, 64, 128}},
};
constexpr size_t kPrefillTokens = 512;
constexpr size_t kVocabulary = 4096;
constexpr size_t kHeadRows = 32;

constexpr size_t kRounds = 7;
constexpr uint64_t kLimitTimeUs = 15'000;
constexpr uint64_t kCallTimeUs = 50'000;
constexpr size_t kReadBytes = size_t{512} << 20;
// Helpers stay awake between two calls.
constexpr uint32_t kSpinUs = 5000;

// A second, of T threads together.
struct Limits {
    double read = 0;
    double peak = 0;
};

std::vector<Bf16> random_values(size_t count, float scale) {
    static std::mt19937 engine(1);
    std::normal_distribution<float> normal(0.0f, scale);
    // Drawing many would take longer than the benchmark: a prime number of values, repeated.
    std::vector<float> drawn(std::min<size_t>(count, 65521));
    for (float& value : drawn) value = normal(engine);
    std::vector<Bf16> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = ops::from_float(drawn[i % drawn.size()]);
    return values;
}

void fill(Bf16* values, size_t count) {
    const std::vector<Bf16> drawn = random_values(65521, 1);
    for (size_t i = 0; i < count; ++i) values[i] = drawn[i % drawn.size()];
}

// As much of a configuration as a cache of one layer wants.
model::ModelConfig config_of(const MlaShape& s) {
    model::ModelConfig config;
    config.num_layers = 1;
    config.kv_lora_rank = static_cast<uint32_t>(s.kv_lora_rank);
    config.qk_rope_head_dim = static_cast<uint32_t>(s.qk_rope_head_dim);
    return config;
}

ops::PackedLinear random_linear(size_t outputs, size_t depth) {
    const auto values = random_values(outputs * depth, 1.0f / std::sqrt(static_cast<float>(depth)));
    return ops::PackedLinear::pack(ops::make_rows(values.data(), outputs, depth),
                                   ops::best_numeric_class());
}

ops::MlaWeights make_weights(const MlaShape& s) {
    ops::MlaWeights w;
    w.shape = s;
    w.softmax_scale = 1.0f / std::sqrt(static_cast<float>(s.qk_nope_head_dim + s.qk_rope_head_dim));
    if (s.q_lora_rank > 0) w.weight_dq = random_linear(s.q_lora_rank, s.hidden);
    w.weight_uq_qr = random_linear(s.num_heads * (s.qk_nope_head_dim + s.qk_rope_head_dim),
                                   s.q_lora_rank > 0 ? s.q_lora_rank : s.hidden);
    w.weight_dkv_kr = random_linear(s.kv_lora_rank + s.qk_rope_head_dim, s.hidden);
    const size_t kv_b_rows = s.num_heads * (s.qk_nope_head_dim + s.v_head_dim);
    const auto kv_b = random_values(kv_b_rows * s.kv_lora_rank,
                                    1.0f / std::sqrt(static_cast<float>(s.kv_lora_rank)));
    ops::pack_kv_b_proj(
        ops::make_rows(kv_b.data(), kv_b_rows, s.kv_lora_rank), ops::best_numeric_class(), w);
    w.rmsnorm_gamma_cq.assign(s.q_lora_rank, ops::from_float(1.0f));
    w.rmsnorm_gamma_ckv.assign(s.kv_lora_rank, ops::from_float(1.0f));
    return w;
}

// Amount a second of step(), which returns how much it did.
template <typename Step>
double rate_of(uint64_t time_us, const Step& step) {
    const uint64_t start_us = schedule::steady_now_us();
    double amount = 0;
    uint64_t elapsed_us = 0;
    do {
        amount += step();
        elapsed_us = schedule::steady_now_us() - start_us;
    } while (elapsed_us < time_us);
    return amount / static_cast<double>(elapsed_us) * 1e6;
}

double median(std::array<double, kRounds> values) {
    std::sort(values.begin(), values.end());
    return values[kRounds / 2];
}

// What a case takes of the machine; 0: not bound by it.
struct Work {
    double flops = 0;
    double bytes = 0;
};

using Ratio = std::function<double(double seconds, const Limits& limits)>;

class Report {
  public:
    explicit Report(std::string_view filter)
        : filter_(filter), memory_(kReadBytes), cpus_(daemon::allowed_cpus()) {
        std::printf("%-40s %10s %8s %8s %7s %7s  %s\n",
                    "",
                    "us",
                    "GFLOP/s",
                    "GB/s",
                    "of peak",
                    "ratio",
                    "limits: GFLOP/s, GB/s, flag ns");
    }

    bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }
    unsigned num_cores() const { return static_cast<unsigned>(cpus_.size()); }
    std::span<const uint32_t> cpus() const { return cpus_; }

    // Times `call` between measurements of the limits; the median time in seconds.
    double row(const std::string& name,
               daemon::ThreadPool& pool,
               const Work& work,
               const std::function<void()>& call,
               const Ratio& ratio) {
        const double first_trip_ns = round_trip_ns();
        std::array<double, kRounds> seconds{}, of_peak{}, ratios{}, reads{}, peaks{};
        call();
        for (size_t round = 0; round < kRounds; ++round) {
            const Limits limits{rate_of(kLimitTimeUs, [&] { return memory_.run(pool); }),
                                rate_of(kLimitTimeUs, [&] { return bf16_step(pool); })};
            seconds[round] = 1 / rate_of(kCallTimeUs, [&] {
                                 call();
                                 return 1.0;
                             });
            of_peak[round] = work.flops / seconds[round] / limits.peak;
            ratios[round] = ratio(seconds[round], limits);
            reads[round] = limits.read;
            peaks[round] = limits.peak;
        }
        const double time = median(seconds);
        std::printf("%-40s %10.1f %8.1f %8.2f %7.2f %7.2f  %.0f %.1f %.0f-%.0f\n",
                    name.c_str(),
                    time * 1e6,
                    work.flops / time / 1e9,
                    work.bytes / time / 1e9,
                    median(of_peak),
                    median(ratios),
                    median(peaks) / 1e9,
                    median(reads) / 1e9,
                    first_trip_ns,
                    round_trip_ns());
        std::fflush(stdout);
        return time;
    }

  private:
    double round_trip_ns() const {
        if (num_cores() < 2) return 0;
        daemon::ThreadPool two(2, kSpinUs, false, cpus_);
        return flag_round_trip_ns(two);
    }

    std::string filter_;
    ReadStep memory_;
    std::vector<uint32_t> cpus_;
};

double attention_flops(const MlaShape& s, double num_scores) {
    return 2 * num_scores *
           static_cast<double>(s.num_heads * (2 * s.kv_lora_rank + s.qk_rope_head_dim));
}

// weight_uv, which mla_attention() applies to each head.
double expansion_products(const MlaShape& s) {
    return static_cast<double>(s.num_heads * s.kv_lora_rank * s.v_head_dim);
}

size_t cache_bytes() {
    const long l3_bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return 5 * static_cast<size_t>(std::max(l3_bytes, long{32} << 20));
}

void run_decode(Report& report, const Model& model, size_t context, unsigned num_threads) {
    const std::string name = std::string("decode/") + model.name +
                             "/context:" + std::to_string(context) +
                             "/threads:" + std::to_string(num_threads);
    if (!report.wants(name)) return;
    const MlaShape& s = model.shape;
    const ops::MlaWeights weights = make_weights(s);
    const size_t row_bytes = (s.kv_lora_rank + s.qk_rope_head_dim) * sizeof(Bf16);
    const size_t blocks = context / ops::kAttentionBlock;
    const size_t num_sequences = cache_bytes() / (context * row_bytes) + num_threads;
    const size_t num_slots = num_sequences * context;
    const auto cache = model::KvCache::create(config_of(s), num_slots);
    AFD_ASSERT(cache.ok(), "%s", cache.error().message.c_str());
    const ops::LatentCache latent = cache.value().layer(0);
    fill(latent.ckv, num_slots * s.kv_lora_rank);
    fill(latent.kr, num_slots * s.qk_rope_head_dim);
    const auto query = random_values(num_threads * s.num_heads * s.kv_lora_rank, 0.1f);
    const auto query_rope = random_values(num_threads * s.num_heads * s.qk_rope_head_dim, 0.1f);
    std::vector<Bf16> out(num_threads * s.num_heads * s.v_head_dim);
    const ops::Workspace workspace(ops::mla_attention_workspace_bytes(s, num_threads, num_threads));
    const std::vector<int32_t> positions(num_threads, static_cast<int32_t>(context - 1));
    std::vector<int32_t> table(num_sequences * blocks);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    daemon::ThreadPool pool(num_threads, kSpinUs, false, report.cpus());
    std::vector<const int32_t*> tables(num_threads);
    size_t sequence = 0;
    const double bytes =
        static_cast<double>(num_threads * context * row_bytes) + 2 * expansion_products(s);
    const double flops = attention_flops(s, static_cast<double>(num_threads * context)) +
                         2 * num_threads * expansion_products(s);
    report.row(
        name,
        pool,
        {flops, bytes},
        [&] {
            for (const int32_t*& own : tables) {
                own = &table[sequence * blocks];
                sequence = (sequence + 1) % num_sequences;
            }
            const auto result = ops::mla_attention(
                {.weights = &weights,
                 .query = ops::make_rows(query.data(), num_threads, query.size() / num_threads),
                 .query_rope = ops::make_rows(
                     query_rope.data(), num_threads, query_rope.size() / num_threads),
                 .batch = {num_threads, positions.data(), nullptr, tables.data()},
                 .cache = latent,
                 .out = ops::make_rows(out.data(), num_threads, out.size() / num_threads)},
                workspace.bytes(),
                pool);
            AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
        },
        [&](double seconds, const Limits& limits) {
            return seconds / std::max(bytes / limits.read, flops / limits.peak);
        });
}

void run_prefill(Report& report, const Model& model, unsigned num_threads) {
    const std::string name =
        std::string("prefill/") + model.name + "/threads:" + std::to_string(num_threads);
    if (!report.wants(name)) return;
    const MlaShape& s = model.shape;
    constexpr size_t kTokens = kPrefillTokens;
    const ops::MlaWeights weights = make_weights(s);
    const ops::PackedLinear o_proj = random_linear(s.hidden, s.num_heads * s.v_head_dim);
    const auto rope =
        ops::RopeTable::make({.dim = s.qk_rope_head_dim, .num_positions = kTokens, .yarn = {}});
    AFD_ASSERT(rope.ok(), "%s", rope.error().message.c_str());
    std::vector<Bf16> residual = random_values(kTokens * s.hidden, 1);
    std::vector<Bf16> x(kTokens * s.hidden);
    std::vector<Bf16> query(kTokens * s.num_heads * s.kv_lora_rank);
    std::vector<Bf16> query_rope(kTokens * s.num_heads * s.qk_rope_head_dim);
    std::vector<Bf16> heads(kTokens * s.num_heads * s.v_head_dim);
    const auto kv_cache = model::KvCache::create(config_of(s), kTokens);
    AFD_ASSERT(kv_cache.ok(), "%s", kv_cache.error().message.c_str());
    const std::vector<Bf16> gamma(s.hidden, ops::from_float(1.0f));
    std::vector<int32_t> positions(kTokens);
    std::vector<int64_t> cache_index(kTokens);
    std::vector<int32_t> table(kTokens / ops::kAttentionBlock);
    for (size_t i = 0; i < kTokens; ++i) positions[i] = static_cast<int32_t>(i);
    for (size_t i = 0; i < kTokens; ++i) cache_index[i] = static_cast<int64_t>(i);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    const std::vector<const int32_t*> tables(kTokens, table.data());
    const ops::Workspace workspace(
        std::max(ops::mla_prolog_workspace_bytes(s, kTokens),
                 ops::mla_attention_workspace_bytes(s, kTokens, num_threads)));
    daemon::ThreadPool pool(num_threads, kSpinUs, false, report.cpus());
    const ops::AttentionBatch batch{kTokens, positions.data(), cache_index.data(), tables.data()};
    const ops::LatentCache cache = kv_cache.value().layer(0);
    const auto rows = [](std::vector<Bf16>& values) {
        return ops::make_rows(values.data(), kTokens, values.size() / kTokens);
    };
    const double products_per_token =
        static_cast<double>(weights.weight_dq.num_outputs() * s.hidden +
                            weights.weight_uq_qr.num_outputs() * weights.weight_uq_qr.depth() +
                            weights.weight_dkv_kr.num_outputs() * s.hidden +
                            s.num_heads * (s.qk_nope_head_dim + s.v_head_dim) * s.kv_lora_rank +
                            s.hidden * s.num_heads * s.v_head_dim);
    const double flops =
        2 * kTokens * products_per_token + attention_flops(s, 0.5 * kTokens * (kTokens + 1));
    report.row(
        name,
        pool,
        {flops, 0},
        [&] {
            ops::rms_norm(rows(residual), gamma.data(), 1e-6f, rows(x));
            const auto prolog = ops::mla_prolog({.weights = &weights,
                                                 .rope = &rope.value(),
                                                 .token_x = rows(x),
                                                 .batch = batch,
                                                 .cache = cache,
                                                 .query = rows(query),
                                                 .query_rope = rows(query_rope),
                                                 .query_norm = {}},
                                                workspace.bytes(),
                                                pool);
            AFD_ASSERT(prolog.ok(), "%s", prolog.error().message.c_str());
            const auto attention = ops::mla_attention({.weights = &weights,
                                                       .query = rows(query),
                                                       .query_rope = rows(query_rope),
                                                       .batch = batch,
                                                       .cache = cache,
                                                       .out = rows(heads)},
                                                      workspace.bytes(),
                                                      pool);
            AFD_ASSERT(attention.ok(), "%s", attention.error().message.c_str());
            ops::linear(rows(heads), o_proj, rows(x), pool);
            // Not into `residual`: the next call wants the same input.
            ops::residual_add(rows(residual), rows(x));
        },
        [&](double seconds, const Limits& limits) { return flops / seconds / limits.peak; });
}

void run_head(Report& report, unsigned num_threads) {
    const std::string suffix = "/threads:" + std::to_string(num_threads);
    if (!report.wants("head" + suffix) && !report.wants("sample")) return;
    constexpr size_t kHidden = 1024;
    const ops::PackedLinear head = random_linear(kVocabulary, kHidden);
    const std::vector<Bf16> x = random_values(kHeadRows * kHidden, 1);
    std::vector<float> logits(kHeadRows * kVocabulary);
    daemon::ThreadPool pool(num_threads, kSpinUs, false, report.cpus());
    const double flops = 2.0 * kHeadRows * kVocabulary * kHidden;
    const double bytes = 2.0 * kVocabulary * kHidden;
    const double head_seconds = report.row(
        "head" + suffix,
        pool,
        {flops, bytes},
        [&] {
            ops::linear_f32(ops::make_rows(x.data(), kHeadRows, kHidden),
                            head,
                            ops::make_rows(logits.data(), kHeadRows, kVocabulary),
                            pool);
        },
        [&](double seconds, const Limits& limits) {
            return seconds / std::max(bytes / limits.read, flops / limits.peak);
        });
    struct Way {
        const char* name;
        model::SamplingParams params;
    };
    const Way ways[] = {{"greedy", {.temperature = 0}},
                        {"all", {.temperature = 1}},
                        {"top_k:40", {.temperature = 1, .top_k = 40}},
                        {"top_p:0.95", {.temperature = 1, .top_p = 0.95f}},
                        {"top_k:40,top_p:0.95", {.temperature = 1, .top_k = 40, .top_p = 0.95f}}};
    std::vector<model::Sampler> samplers(num_threads, model::Sampler(kVocabulary));
    uint64_t position = 0;
    for (const Way& way : ways) {
        report.row(
            std::string("sample/") + way.name + suffix,
            pool,
            {},
            [&] {
                pool.run(kHeadRows, [&](size_t row, unsigned thread) {
                    const auto token = samplers[thread].sample(
                        std::span(logits).subspan(row * kVocabulary, kVocabulary),
                        way.params,
                        position + row);
                    AFD_ASSERT(token.ok(), "%s", token.error().message.c_str());
                });
                position += kHeadRows;
            },
            [&](double seconds, const Limits&) { return seconds / head_seconds; });
    }
}

void run_all(std::string_view filter) {
    Report report(filter);
    for (unsigned num_threads = 1; num_threads <= report.num_cores(); num_threads *= 2) {
        for (const Model& model : kModels) {
            for (const size_t context : {256, 4096, 32768}) {
                run_decode(report, model, context, num_threads);
            }
            run_prefill(report, model, num_threads);
        }
        run_head(report, num_threads);
    }
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    const std::string_view flag = argc == 3 ? argv[1] : "";
    if (argc != 1 && flag != "--filter") {
        std::fprintf(stderr, "usage: %s [--filter TEXT]\n", argv[0]);
        return 2;
    }
    afd::bench::run_all(argc == 3 ? argv[2] : "");
    return 0;
}
