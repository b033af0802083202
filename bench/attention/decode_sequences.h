// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecodeSequences: sequences with full caches, of which every step of a benchmark takes the next
// ones. Together their caches are larger than four times the last-level cache, so each finds its
// own in memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention/attention_report.h"
#include "ops/format/attention_batch.h"
#include "ops/format/kv_dtype.h"

namespace afd::bench {

class DecodeSequences {
  public:
    // `position_bytes`: of a position's cache. A step is one token of each of `num_tokens`
    // sequences, which attends to the last `seen` of its positions; sequences have no others of
    // their own. REQUIRES: context and seen are multiples of ops::kAttentionBlock.
    DecodeSequences(size_t position_bytes, size_t context, size_t seen, unsigned num_tokens);

    size_t num_tokens() const { return positions_.size(); }
    // Of all their caches.
    size_t num_slots() const { return num_sequences_ * seen_; }
    // That a step attends to.
    double num_scores() const { return static_cast<double>(num_tokens() * seen_); }

    // The next tokens. Valid until the next call.
    ops::AttentionBatch next();

  private:
    const size_t context_;
    const size_t seen_;
    const size_t num_sequences_;
    const std::vector<int32_t> positions_;
    std::vector<int32_t> blocks_;  // Of all sequences, one behind the other.
    std::vector<const int32_t*> tables_;
    size_t sequence_ = 0;
};

// The name of a row of decoding.
std::string decode_row(const char* model,
                       size_t context,
                       unsigned num_threads,
                       ops::KvDtype kv_dtype);

// The row of `decode`, which has work() of a step and step(parallel). The ratio is the time /
// RowLimits::least_seconds().
template <typename Decode>
void report_decode(AttentionReport& report,
                   const std::string& name,
                   unsigned num_threads,
                   Decode decode) {
    threads::ThreadPool pool = report.make_pool(num_threads);
    const Work work = decode.work();
    report.row(
        name,
        pool,
        work,
        [&] { decode.step(pool); },
        [&](double seconds, const RowLimits& limits) {
            return seconds / limits.least_seconds(work);
        });
}

}  // namespace afd::bench
