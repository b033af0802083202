// SPDX-License-Identifier: Apache-2.0
#pragma once

// PrefillTokens: the first tokens of one sequence, which a benchmark sends through an attention
// block at once.

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "bench/attention/attention_report.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::bench {

class PrefillTokens {
  public:
    static constexpr size_t kCount = 512;

    PrefillTokens() {
        std::iota(positions_.begin(), positions_.end(), 0);
        std::iota(slots_.begin(), slots_.end(), 0);
        std::iota(blocks_.begin(), blocks_.end(), 0);
        tables_.assign(kCount, blocks_.data());
    }
    PrefillTokens(const PrefillTokens&) = delete;
    PrefillTokens& operator=(const PrefillTokens&) = delete;

    ops::AttentionBatch batch() const {
        return {kCount, positions_.data(), slots_.data(), tables_.data()};
    }

    // Of all tokens: positions that a head scores, where a token sees `window` at most.
    static constexpr double num_scores(size_t window = kCount) {
        const auto seen = static_cast<double>(window);
        return 0.5 * seen * (seen + 1) + (static_cast<double>(kCount) - seen) * seen;
    }

    // A row of values for each token.
    static ops::Rows<ops::Bf16> rows_of(std::vector<ops::Bf16>& values) {
        return ops::make_rows(values.data(), kCount, values.size() / kCount);
    }

  private:
    std::vector<int32_t> positions_ = std::vector<int32_t>(kCount);
    std::vector<int64_t> slots_ = std::vector<int64_t>(kCount);
    std::vector<int32_t> blocks_ = std::vector<int32_t>(kCount / ops::kAttentionBlock);
    std::vector<const int32_t*> tables_;
};

inline std::string prefill_row(const char* model, unsigned num_threads) {
    return std::string("prefill/") + model + "/threads:" + std::to_string(num_threads);
}

// The row of `prefill`, which has operations() of a call and run(parallel). The ratio is operations
// a second / the peak.
template <typename Prefill>
void report_prefill(AttentionReport& report,
                    const std::string& name,
                    unsigned num_threads,
                    Prefill& prefill) {
    threads::ThreadPool pool = report.make_pool(num_threads);
    const double operations = prefill.operations();
    report.row(
        name,
        pool,
        {.operations = operations, .bytes = 0},
        [&] { prefill.run(pool); },
        [&](double seconds, const RowLimits& limits) {
            return operations / seconds / limits.peak;
        });
}

}  // namespace afd::bench
