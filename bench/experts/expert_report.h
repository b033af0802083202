// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows of bench_experts: each is printed as soon as it is measured, and counts in the summary
// unless the virtual cores moved meanwhile.

#include <string>

#include "bench/experts/expert_case.h"
#include "bench/experts/expert_ratios.h"
#include "bench/experts/expert_summary.h"
#include "bench/experts/many_experts.h"

namespace afd::bench {

// The round trips of a flag (ExpertMachine::round_trip_ns()) before and after a row.
struct RowPlacement {
    double before_ns = 0;
    double after_ns = 0;

    // Whether the two cores came to share a core or a cache, or ceased to.
    bool has_changed() const;
    // The end of the row; empty with one thread.
    std::string text() const;
};

void report_case(const ExpertCase& c,
                 const ExpertRatios& ratios,
                 const RowPlacement& placement,
                 ExpertSummary& summary);

void report_many(const std::string& name,
                 const ManyExpertsTimes& times,
                 const RowPlacement& placement,
                 ExpertSummary& summary);

}  // namespace afd::bench
