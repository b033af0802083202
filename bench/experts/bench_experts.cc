// SPDX-License-Identifier: Apache-2.0

// bench_experts: the expert kernels against the limits of this machine and against oneDNN.
//
//   bench_experts [--only TEXT] [--rounds N] [--results FILE] [--numeric-class NAME]
//
// A row is one case, named FORMAT/HIDDENxINTERMEDIATE/rows:N/threads:N, with FORMAT-int8-rows where
// int4 weights meet int8 rows; --only runs those whose
// name holds TEXT. With --results the summary at the end is of all runs with that file. Experts
// take turns over more than 256 MiB of weights, so each finds its weights in memory. OneDNN,
// limits and our kernel run one after another in every round, after one round that is not counted;
// a row gives medians of the rounds' ratios:
//   read     our bytes a second / those of a plain read by as many threads
//   peak     our operations a second / those of the multiply-add instruction alone
//   bound    max(bytes / read, operations / peak) / our time
//   oneDNN   its time / ours, with the same work (bench/experts/dnnl_experts.h); in brackets the
//            time of its products alone, without the steps that make them an expert's result
// and the target of the case with whether it was met; beside a target of the peak, the part of the
// peak that a plain read of the weights allows with so many rows. With two threads the round trip
// of a flag between the cores is taken before and after: it tells whether two virtual cores share
// one core. Rows in which that changed are marked and left out.
//
// Peaks are of the fastest instructions that the processor has (bench/limits/limit_loops.h), also
// where another class than theirs was asked for. Where it has no AMX a line says that rows with AMX
// were not measured.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/experts/expert_case.h"
#include "bench/experts/expert_machine.h"
#include "bench/experts/expert_ratios.h"
#include "bench/experts/expert_report.h"
#include "bench/experts/expert_summary.h"
#include "bench/experts/many_experts.h"
#include "ops/format/amx_support.h"
#include "ops/format/numeric_class.h"
#include "threads/thread_pool.h"

namespace afd::bench {
namespace {

using ops::WeightFormat;

constexpr uint32_t kFirstCore[] = {0};

struct Options {
    std::string only;
    std::string results;
    size_t rounds = 9;
    ops::NumericClass numeric_class = ops::best_numeric_class();

    bool wants(const std::string& name) const { return name.find(only) != std::string::npos; }
};

void print_limits(unsigned num_threads, ExpertMachine& machine) {
    ops::Parallel& parallel = machine.parallel(num_threads);
    const double read = machine.read_rate(parallel);
    const double bf16 = machine.peak_rate(WeightFormat::kBf16, parallel);
    const double int8 = machine.peak_rate(WeightFormat::kInt8, parallel);
    std::printf("%u thread%s: read %.1f GB/s, bf16 %.0f GFLOP/s, int8 %.0f GOP/s\n",
                num_threads,
                num_threads == 1 ? "" : "s",
                read / 1e9,
                bf16 / 1e9,
                int8 / 1e9);
}

void run_case(const ExpertCase& c,
              const Options& options,
              ExpertMachine& machine,
              ExpertSummary& summary) {
    if (!options.wants(c.name())) return;
    RowPlacement placement;
    placement.before_ns = machine.round_trip_ns(c.num_threads);
    const ExpertRatios ratios = measure_ratios(c, options.rounds, machine);
    placement.after_ns = machine.round_trip_ns(c.num_threads);
    report_case(c, ratios, placement, summary);
}

void run_many(WeightFormat format,
              unsigned num_threads,
              const Options& options,
              ExpertMachine& machine,
              ExpertSummary& summary) {
    const std::string name = ManyExperts::name(format, num_threads);
    if (!options.wants(name)) return;
    ManyExperts experts(format);
    RowPlacement placement;
    placement.before_ns = machine.round_trip_ns(num_threads);
    const ManyExpertsTimes times = experts.measure(options.rounds, machine.parallel(num_threads));
    placement.after_ns = machine.round_trip_ns(num_threads);
    report_many(name, times, placement, summary);
}

void print_missing_amx() {
    if (ops::is_native(ops::NumericClass::kAmx)) return;
    for (const WeightFormat format : kExpertFormats) {
        std::printf("%s with AMX: not measured here, %s\n",
                    std::string(ops::name_of(format)).c_str(),
                    std::string(ops::amx_support().reason).c_str());
    }
}

void run_all(const Options& options) {
    ExpertMachine machine;
    ExpertSummary summary(options.results);
    for (const unsigned num_threads : {1u, 2u}) {
        print_limits(num_threads, machine);
        for (const WeightFormat format : kExpertFormats) {
            for (const ops::Int4Rows rows : ops::kInt4Rows) {
                if (rows == ops::Int4Rows::kInt8 && !ops::is_int4(format)) continue;
                for (const ExpertCase& c :
                     expert_cases(format, num_threads, options.numeric_class, rows)) {
                    run_case(c, options, machine, summary);
                }
            }
            if (options.numeric_class == ops::best_numeric_class()) {
                run_many(format, num_threads, options, machine, summary);
            }
        }
    }
    summary.print();
    print_missing_amx();
}

int main(int argc, char** argv) {
    CLI::App app("Times the expert kernels beside the machine's limits and oneDNN.",
                 "bench_experts");
    Options options;
    app.add_option("--only", options.only, "Cases whose name holds this text only");
    app.add_option("--rounds", options.rounds, "Measurements of each case")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    std::string class_name(ops::name_of(options.numeric_class));
    app.add_option("--numeric-class", class_name, "Kernels of ours that run")
        ->capture_default_str()
        ->check([](const std::string& name) {
            const auto named = ops::parse_numeric_class(name);
            const bool can_run = named.has_value() && ops::supported(*named);
            return can_run ? std::string() : name + " is no class that this processor can run";
        });
    app.add_option("--results", options.results, "Appends the rows to this file and sums it up");
    app.footer("Example: bench_experts --only bf16/2048x1408/rows:8 --rounds 5");
    CLI11_PARSE(app, argc, argv);
    options.numeric_class = *ops::parse_numeric_class(class_name);
    if (const auto pinned = threads::pin_this_thread(kFirstCore); !pinned.ok()) {
        std::fprintf(stderr, "bench_experts: %s\n", pinned.error().message.c_str());
    }
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
