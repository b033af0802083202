// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertCase: what one row of bench_experts runs, what it is held against, and the list of them.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/experts/expert_weights.h"
#include "ops/format/weight_format.h"

namespace afd::bench {

// `num_rows` rows of x through one expert on `num_threads` threads.
struct ExpertCase {
    ExpertShape shape;
    size_t num_rows;
    unsigned num_threads;

    // FORMAT/HIDDENxINTERMEDIATE/rows:N/threads:N (FORMAT-int8-rows with Int4Rows::kInt8), then
    // @CLASS where it is not the default one.
    std::string name() const;
    // Of gate, up and down together.
    double num_weights() const;
    // Two for each product of a weight and a row.
    double operations() const;
};

// Which ratio of a case is looked at (ExpertRatios), and how large it must be.
struct ExpertTarget {
    enum class Of { kRead, kPeak, kBound } of;
    double ratio;

    // As a row names it.
    const char* name() const;
};

// Few rows are bound by reading weights, many by multiply-adds. None for what does not run on the
// fastest multiply-adds of this processor, whose peak it is held against: many rows of another
// class, and beside tiles int8 rows of int4 weights. None for int4 as other programs write it, with
// long scales or zero points.
std::optional<ExpertTarget> target_of(const ExpertCase& c);

// In the order of their rows.
inline constexpr ops::WeightFormat kExpertFormats[] = {ops::WeightFormat::kBf16,
                                                       ops::WeightFormat::kInt8,
                                                       ops::WeightFormat::kInt4Group32,
                                                       ops::WeightFormat::kInt4Group64,
                                                       ops::WeightFormat::kFp8Block128,
                                                       ops::WeightFormat::kMxfp4,
                                                       ops::WeightFormat::kInt4Group64Fp16,
                                                       ops::WeightFormat::kInt4Group64Fp16Zero};
std::vector<ExpertCase> expert_cases(ops::WeightFormat format,
                                     unsigned num_threads,
                                     ops::NumericClass numeric_class,
                                     ops::Int4Rows int4_rows);

}  // namespace afd::bench
