// SPDX-License-Identifier: Apache-2.0

// bench_experts: the expert kernels against the limits of this machine and against oneDNN.
//
//   bench_experts [--only TEXT] [--rounds N] [--results FILE]
//
// A row is one case, named FORMAT/HIDDENxINTERMEDIATE/rows:N/threads:N; --only runs those whose
// name holds TEXT. With --results the summary at the end is of all runs with that file. Experts
// take turns over more than 256 MiB of weights, so each finds its weights in memory. OneDNN,
// limits and our kernel run one after another in every round, after one round that is not counted;
// a row gives medians of the rounds' ratios:
//   read     our bytes a second / those of a plain read by as many threads
//   peak     our operations a second / those of the multiply-add instruction alone
//   bound    max(bytes / read, operations / peak) / our time
//   oneDNN   its time / ours, with the same work (bench/dnnl_experts.h); in brackets that of its
//            products alone, which nobody who wants an expert's result can have
// and the target of the case with whether it was met. With two threads the round trip of a flag
// between the cores is taken before and after: it tells whether two virtual cores share one core.
// Rows in which that changed are marked and count for nothing.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/dnnl_experts.h"
#include "bench/expert_summary.h"
#include "bench/expert_weights.h"
#include "bench/flag_round_trip.h"
#include "bench/limit_steps.h"
#include "daemon/thread_pool.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::WeightFormat;
using Clock = std::chrono::steady_clock;

constexpr size_t kColdBytes = size_t{256} << 20;
constexpr double kSampleSeconds = 6e-3;
// How long threads without work look for some before they sleep, ours and the library's.
constexpr uint32_t kSpinUs = 100;

struct Options {
    std::string only;
    std::string results;
    size_t rounds = 9;
};

struct Case {
    ExpertShape shape;
    size_t num_rows;
    unsigned num_threads;

    std::string name() const {
        return std::string(ops::name_of(shape.format)) + "/" + std::to_string(shape.hidden) + "x" +
               std::to_string(shape.intermediate) + "/rows:" + std::to_string(num_rows) +
               "/threads:" + std::to_string(num_threads);
    }
    double weights() const { return 3.0 * static_cast<double>(shape.hidden * shape.intermediate); }
    double operations() const { return 2.0 * static_cast<double>(num_rows) * weights(); }
};

// What a case is held against, and how much of it.
struct Target {
    enum class Of { kRead, kPeak, kBound } of;
    double ratio;
};

Target target_of(const Case& c) {
    const bool is_few = c.num_rows <= 8;
    switch (c.shape.format) {
        case WeightFormat::kBf16:
            return is_few ? Target{Target::Of::kRead, 0.95} : Target{Target::Of::kPeak, 0.92};
        case WeightFormat::kInt8:
            return is_few ? Target{Target::Of::kRead, 0.92} : Target{Target::Of::kPeak, 0.85};
        default:
            return c.num_rows <= 2 ? Target{Target::Of::kRead, 0.80}
                                   : Target{Target::Of::kBound, 1 / 1.2};
    }
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

template <typename Body>
double seconds_of(const Body& body) {
    const Clock::time_point start = Clock::now();
    body();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Amount a second of a step that returns its amount.
template <typename Step>
double rate_of(const Step& step) {
    double amount = 0;
    const double seconds = seconds_of([&] { amount = step(); });
    return amount / seconds;
}

// Our kernel over experts that take turns.
class Ours {
  public:
    Ours(const ExpertWeights& weights, size_t num_rows, size_t num_groups)
        : weights_(weights),
          num_rows_(num_rows),
          x_(num_rows * weights.table().hidden()),
          y_(x_.size()),
          workspace_(ops::grouped_ffn_workspace_bytes(weights.table(), num_rows, num_groups)) {
        std::mt19937 engine(1);
        std::normal_distribution<float> normal;
        for (ops::Bf16& value : x_) value = ops::from_float(normal(engine));
    }

    void run(size_t first_row, std::span<const ops::ExpertGroup> groups, ops::Parallel& parallel) {
        const size_t hidden = weights_.table().hidden();
        const size_t first = first_row * hidden;
        const auto result = ops::grouped_ffn(
            {.experts = &weights_.table(),
             .groups = groups,
             .x = ops::make_rows<const ops::Bf16>(&x_[first], num_rows_ - first_row, hidden),
             .y = ops::make_rows(&y_[first], num_rows_ - first_row, hidden)},
            workspace_.bytes(),
            parallel);
        AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
    }

    ops::Rows<const ops::Bf16> x() const {
        return ops::make_rows(x_.data(), num_rows_, weights_.table().hidden());
    }
    ops::Rows<const ops::Bf16> y() const {
        return ops::make_rows(y_.data(), num_rows_, weights_.table().hidden());
    }

    // All rows through the next expert.
    void run_next(ops::Parallel& parallel) {
        const ops::ExpertGroup group{static_cast<int64_t>(next_), static_cast<int64_t>(num_rows_)};
        run(0, {&group, 1}, parallel);
        next_ = (next_ + 1) % weights_.num_experts();
    }

  private:
    const ExpertWeights& weights_;
    const size_t num_rows_;
    std::vector<ops::Bf16> x_;
    std::vector<ops::Bf16> y_;
    ops::Workspace workspace_;
    size_t next_ = 0;
};

struct Ratios {
    std::vector<double> read, peak, bound, dnnl, dnnl_products, milliseconds;
};

struct Machine {
    ReadStep read{size_t{1} << 29};
    ops::SerialParallel serial;
    std::unique_ptr<daemon::ThreadPool> pool;

    ops::Parallel& parallel(unsigned num_threads) {
        if (num_threads == 1) return serial;
        if (!pool) {
            // The helper sleeps soon, so that the library's threads have the core to themselves.
            pool = std::make_unique<daemon::ThreadPool>(
                num_threads, kSpinUs, false, std::span<const uint32_t>(kCores));
        }
        return *pool;
    }
    static constexpr uint32_t kCores[] = {0, 1};
};

// Seconds of one of `calls` calls.
template <typename Body>
double seconds_of_call(size_t calls, const Body& body) {
    return seconds_of([&] {
               for (size_t i = 0; i < calls; ++i) body();
           }) /
           static_cast<double>(calls);
}

// Until threads that look for work have gone to sleep.
void wait_for_sleepers() {
    std::this_thread::sleep_for(2 * std::chrono::microseconds(kSpinUs));
}

// The peer must have done the work: its roundings differ, its results may not.
void check_peer(DnnlExperts& dnnl, Ours& ours, ops::Parallel& parallel) {
    constexpr double kLargestError = 0.02;  // Of the norm.
    dnnl.run(0);
    ours.run_next(parallel);
    const ops::Rows<const ops::Bf16> theirs = dnnl.y();
    double error = 0;
    double norm = 0;
    for (size_t row = 0; row < theirs.num_rows; ++row) {
        for (size_t column = 0; column < theirs.num_cols; ++column) {
            const double value = ops::to_float(ours.y().row(row)[column]);
            const double difference = ops::to_float(theirs.row(row)[column]) - value;
            error += difference * difference;
            norm += value * value;
        }
    }
    AFD_ASSERT(norm > 0 && std::sqrt(error / norm) < kLargestError,
               "oneDNN's result is off by %g of %g",
               std::sqrt(error),
               std::sqrt(norm));
}

Ratios measure(const Case& c, size_t rounds, Machine& machine) {
    ops::Parallel& parallel = machine.parallel(c.num_threads);
    const WeightFormat format = c.shape.format;
    const double bytes_guess = c.weights() * (format == WeightFormat::kBf16   ? 2
                                              : format == WeightFormat::kInt8 ? 1
                                                                              : 0.53);
    const size_t num_experts =
        static_cast<size_t>(static_cast<double>(kColdBytes) / bytes_guess) + 1;
    const ExpertWeights weights(c.shape, num_experts);
    Ours ours(weights, c.num_rows, 1);
    std::unique_ptr<DnnlExperts> dnnl;
    if (!ops::is_int4(format)) {
        dnnl =
            DnnlExperts::make(c.shape, plain_expert(c.shape), num_experts, ours.x(), c.num_threads);
    }
    if (dnnl) check_peer(*dnnl, ours, parallel);
    const auto bytes = static_cast<double>(weights.expert_bytes());
    size_t calls = 1;
    size_t next = 0;
    Ratios ratios;
    for (size_t round = 0; round <= rounds; ++round) {
        double dnnl_seconds = 0;
        double product_seconds = 0;
        if (dnnl) {
            const auto next_expert = [&] { return next++ % num_experts; };
            wait_for_sleepers();
            dnnl->run(next_expert());
            dnnl_seconds = seconds_of_call(calls, [&] { dnnl->run(next_expert()); });
            product_seconds = seconds_of_call(calls, [&] { dnnl->run_products(next_expert()); });
            wait_for_sleepers();
        }
        parallel.run(c.num_threads, [](size_t, unsigned) {});  // Wakes them.
        const double read = rate_of([&] { return machine.read.run(parallel); });
        const double peak = rate_of([&] {
            return format == WeightFormat::kInt8 ? int8_step(parallel) : bf16_step(parallel);
        });
        const double bound = std::max(bytes / read, c.operations() / peak);
        const double seconds = seconds_of_call(calls, [&] { ours.run_next(parallel); });
        if (round == 0) {
            calls = static_cast<size_t>(kSampleSeconds / seconds) + 1;
            continue;
        }
        ratios.read.push_back(bytes / seconds / read);
        ratios.peak.push_back(c.operations() / seconds / peak);
        ratios.bound.push_back(bound / seconds);
        ratios.milliseconds.push_back(seconds * 1e3);
        if (!dnnl) continue;
        ratios.dnnl.push_back(dnnl_seconds / seconds);
        ratios.dnnl_products.push_back(product_seconds / seconds);
    }
    return ratios;
}

// Whether two virtual cores that took `ns` for a round trip share one core, one cache, or neither.
int placement(double ns) {
    return ns < 70 ? 0 : ns < 250 ? 1 : 2;
}

// The round trips before and after a row with two threads.
struct Placement {
    double before = 0;
    double after = 0;

    bool has_changed() const { return placement(before) != placement(after); }
    std::string text() const {
        if (before == 0) return "";
        char text[64];
        std::snprintf(text,
                      sizeof text,
                      "  flag %.0f, %.0f ns%s",
                      before,
                      after,
                      has_changed() ? " CHANGED: not counted" : "");
        return text;
    }
};

void report(const Case& c, const Ratios& r, const Placement& placement, ExpertSummary& summary) {
    const Target target = target_of(c);
    const double read = median(r.read);
    const double peak = median(r.peak);
    const double bound = median(r.bound);
    const double have = target.of == Target::Of::kRead   ? read
                        : target.of == Target::Of::kPeak ? peak
                                                         : bound;
    const char* of = target.of == Target::Of::kRead   ? "read"
                     : target.of == Target::Of::kPeak ? "peak"
                                                      : "bound";
    const bool is_met = have >= target.ratio;
    std::printf("%-36s %8.3f ms  read %.2f  peak %.2f  bound %.2f",
                c.name().c_str(),
                median(r.milliseconds),
                read,
                peak,
                bound);
    if (!r.dnnl.empty()) {
        std::printf("  oneDNN %.2f (%.2f)", median(r.dnnl), median(r.dnnl_products));
    }
    std::printf("  target %s %.2f: %s%s\n",
                of,
                target.ratio,
                is_met ? "met" : "NOT met",
                placement.text().c_str());
    std::fflush(stdout);
    if (placement.has_changed()) return;
    summary.add(c.name(), is_met, r.dnnl.empty() ? 0 : median(r.dnnl));
}

void run_case(const Case& c, size_t rounds, Machine& machine, ExpertSummary& summary) {
    Placement placement;
    machine.parallel(c.num_threads);
    if (c.num_threads > 1) placement.before = flag_round_trip_ns(*machine.pool);
    const Ratios ratios = measure(c, rounds, machine);
    if (c.num_threads > 1) placement.after = flag_round_trip_ns(*machine.pool);
    report(c, ratios, placement, summary);
}

// 16 tokens choose 6 of 64 experts: all groups in one call against one call for each expert.
void run_many_experts(WeightFormat format,
                      unsigned num_threads,
                      const Options& options,
                      Machine& machine,
                      ExpertSummary& summary) {
    constexpr size_t kExperts = 64;
    constexpr size_t kTokens = 16;
    constexpr size_t kTopK = 6;
    const std::string name = "64 experts, 16 tokens top-6/" + std::string(ops::name_of(format)) +
                             "/threads:" + std::to_string(num_threads);
    if (name.find(options.only) == std::string::npos) return;
    std::vector<ops::ExpertGroup> groups(kExperts);
    std::mt19937 engine(3);
    for (size_t token = 0; token < kTokens; ++token) {
        std::vector<size_t> experts(kExperts);
        for (size_t i = 0; i < kExperts; ++i) experts[i] = i;
        std::shuffle(experts.begin(), experts.end(), engine);
        for (size_t k = 0; k < kTopK; ++k) ++groups[experts[k]].count;
    }
    for (size_t i = 0; i < kExperts; ++i) groups[i].key = static_cast<int64_t>(i);
    std::erase_if(groups, [](const ops::ExpertGroup& group) { return group.count == 0; });

    const ExpertWeights weights({2048, 1408, format}, kExperts);
    Ours ours(weights, kTokens * kTopK, kExperts);
    ops::Parallel& parallel = machine.parallel(num_threads);
    Placement placement;
    if (num_threads > 1) placement.before = flag_round_trip_ns(*machine.pool);
    std::vector<double> ratios;
    std::vector<double> milliseconds;
    for (size_t round = 0; round <= options.rounds; ++round) {
        const double together = seconds_of([&] { ours.run(0, groups, parallel); });
        const double alone = seconds_of([&] {
            size_t first_row = 0;
            for (const ops::ExpertGroup& group : groups) {
                ours.run(first_row, {&group, 1}, parallel);
                first_row += static_cast<size_t>(group.count);
            }
        });
        if (round == 0) continue;
        ratios.push_back(together / alone);
        milliseconds.push_back(together * 1e3);
    }
    if (num_threads > 1) placement.after = flag_round_trip_ns(*machine.pool);
    const bool is_met = median(ratios) <= 1.05;
    std::printf("%-44s %8.3f ms  %.3f of the sum of its experts  target 1.05: %s%s\n",
                name.c_str(),
                median(milliseconds),
                median(ratios),
                is_met ? "met" : "NOT met",
                placement.text().c_str());
    if (!placement.has_changed()) summary.add(name, is_met, 0);
}

constexpr WeightFormat kFormats[] = {WeightFormat::kBf16,
                                     WeightFormat::kInt8,
                                     WeightFormat::kInt4Group32,
                                     WeightFormat::kInt4Group64};

void run_all(const Options& options) {
    Machine machine;
    ExpertSummary summary(options.results);
    for (const unsigned num_threads : {1u, 2u}) {
        ops::Parallel& parallel = machine.parallel(num_threads);
        std::printf("%u thread%s: read %.1f GB/s, bf16 %.0f GFLOP/s, int8 %.0f GOP/s\n",
                    num_threads,
                    num_threads == 1 ? "" : "s",
                    rate_of([&] { return machine.read.run(parallel); }) / 1e9,
                    rate_of([&] { return bf16_step(parallel); }) / 1e9,
                    rate_of([&] { return int8_step(parallel); }) / 1e9);
        for (const WeightFormat format : kFormats) {
            for (const auto& [hidden, intermediate] : {std::pair{2048, 1408}, {7168, 2048}}) {
                for (const size_t num_rows : {1, 2, 4, 8, 64, 256, 512}) {
                    const Case c{
                        {static_cast<size_t>(hidden), static_cast<size_t>(intermediate), format},
                        num_rows,
                        num_threads};
                    if (c.name().find(options.only) == std::string::npos) continue;
                    run_case(c, options.rounds, machine, summary);
                }
            }
            run_many_experts(format, num_threads, options, machine, summary);
        }
    }
    summary.print();
}

int main(int argc, char** argv) {
    CLI::App app("Times the expert kernels beside the machine's limits and oneDNN.",
                 "bench_experts");
    Options options;
    app.add_option("--only", options.only, "Cases whose name holds this text only");
    app.add_option("--rounds", options.rounds, "Measurements of each case")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--results", options.results, "Appends the rows to this file and sums it up");
    app.footer("Example: bench_experts --only bf16/2048x1408/rows:8 --rounds 5");
    CLI11_PARSE(app, argc, argv);
    daemon::pin_this_thread(0);
    run_all(options);
    return 0;
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    // oneDNN's threads must sleep while ours are measured, and not share the core that this thread
    // is pinned to; their library reads this when it is loaded. A look for work takes 17 ns.
    if (std::getenv("GOMP_SPINCOUNT") == nullptr) {
        ::setenv("GOMP_SPINCOUNT", "6000", 1);
        ::setenv("GOMP_CPU_AFFINITY", "0-1", 1);
        ::execv("/proc/self/exe", argv);
    }
    return afd::bench::main(argc, argv);
}
