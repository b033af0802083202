// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_head.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/attention/random_tensors.h"
#include "model/sampling/sampler.h"
#include "ops/linear/linear.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

constexpr size_t kHidden = 1024;
constexpr size_t kVocabulary = 4096;
constexpr size_t kRows = 32;

struct Way {
    const char* name;
    model::SamplingParams params;
};
constexpr Way kWays[] = {
    {"greedy", {.temperature = 0}},
    {"all", {.temperature = 1}},
    {"top_k:40", {.temperature = 1, .top_k = 40}},
    {"top_p:0.95", {.temperature = 1, .top_p = 0.95f}},
    {"top_k:40,top_p:0.95", {.temperature = 1, .top_k = 40, .top_p = 0.95f}},
};

// Fills `logits` [kRows, kVocabulary]; the seconds of a call.
double time_head(AttentionReport& report,
                 const std::string& name,
                 threads::ThreadPool& pool,
                 std::vector<float>& logits) {
    const ops::PackedLinear head = random_linear(kVocabulary, kHidden, report.numeric_class());
    const std::vector<ops::Bf16> x = random_values(kRows * kHidden, 1);
    constexpr Work kWork{.operations = 2.0 * kRows * kVocabulary * kHidden,
                         .bytes = 2.0 * kVocabulary * kHidden};
    return report.row(
        name,
        pool,
        kWork,
        [&] {
            ops::linear_f32(ops::make_rows(x.data(), kRows, kHidden),
                            head,
                            ops::make_rows(logits.data(), kRows, kVocabulary),
                            pool);
        },
        [&](double seconds, const RowLimits& limits) {
            return seconds / limits.least_seconds(kWork);
        });
}

// One token of each row, at positions that no earlier call had.
void sample_rows(std::span<const float> logits,
                 const model::SamplingParams& params,
                 std::span<model::Sampler> samplers,
                 uint64_t& position,
                 threads::ThreadPool& pool) {
    pool.run(kRows, [&](size_t row, unsigned thread) {
        const auto token = samplers[thread].sample(
            logits.subspan(row * kVocabulary, kVocabulary), params, position + row);
        AFD_ASSERT(token.ok(), "%s", token.error().message.c_str());
    });
    position += kRows;
}

}  // namespace

void run_head(AttentionReport& report, unsigned num_threads) {
    const std::string suffix = "/threads:" + std::to_string(num_threads);
    if (!report.wants("head" + suffix) && !report.wants("sample")) return;
    threads::ThreadPool pool = report.make_pool(num_threads);
    std::vector<float> logits(kRows * kVocabulary);
    const double head_seconds = time_head(report, "head" + suffix, pool, logits);
    std::vector<model::Sampler> samplers(num_threads, model::Sampler(kVocabulary));
    uint64_t position = 0;
    for (const Way& way : kWays) {
        report.row(
            std::string("sample/") + way.name + suffix,
            pool,
            {},
            [&] { sample_rows(logits, way.params, samplers, position, pool); },
            [&](double seconds, const RowLimits&) { return seconds / head_seconds; });
    }
}

}  // namespace afd::bench
