// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionReport: the rows of bench_attention, each timed beside the limits of its threads.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/limits/limit_loops.h"
#include "bench/limits/limit_steps.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "threads/thread_pool.h"

namespace afd::bench {

// What one call takes of the machine; 0: not bound by it.
struct Work {
    double operations = 0;
    double bytes = 0;
};

// A second, of all threads of a row together.
struct RowLimits {
    double read = 0;  // Bytes.
    double peak = 0;  // Operations of bf16, in the class of the report.

    // In which no machine with these limits does it.
    double least_seconds(const Work& work) const;
};

class AttentionReport {
  public:
    // Prints the heads of the columns. A row is wanted if its name holds `filter`.
    AttentionReport(std::string_view filter, ops::NumericClass numeric_class);

    // In which all rows compute.
    ops::NumericClass numeric_class() const { return numeric_class_; }

    bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }
    unsigned num_cores() const { return static_cast<unsigned>(cpus_.size()); }

    // The caller and helpers, each on a core of its own; pins the caller.
    threads::ThreadPool make_pool(unsigned num_threads) const;

    // Rounds of read bandwidth, peak and `call` right after one another; every figure printed
    // is the median of the rounds. `ratio` makes the row's ratio of one round. Returns the median
    // time of a call in seconds.
    using Ratio = std::function<double(double seconds, const RowLimits& limits)>;
    double row(const std::string& name,
               ops::Parallel& parallel,
               const Work& work,
               const std::function<void()>& call,
               const Ratio& ratio);

  private:
    RowLimits measure_limits(ops::Parallel& parallel);
    // 0 with one core.
    double round_trip_ns() const;

    std::string filter_;
    ops::NumericClass numeric_class_;
    LimitLoops loops_;
    ReadStep memory_;
    std::vector<uint32_t> cpus_;
};

}  // namespace afd::bench
