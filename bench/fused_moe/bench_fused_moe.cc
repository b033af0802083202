// SPDX-License-Identifier: Apache-2.0

// bench_fused_moe: where the time of a fused-MoE layer goes, stage by stage, for any pair of parts
// that the records allow, within a process, over windows or in two phases. Medians of microseconds
// over the calls.
//
// In brackets: what runs inside a product here, as long as it takes alone: the activation, and the
// scattered store that undoes the permutation. `other` is what no stage covers (the plain loops of
// `reference`). Over windows the FFN worker is a thread of this process; its stages overlap the
// session's `wait`, so they do not add up to `total`.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "bench/fused_moe/moe_rank.h"
#include "bench/fused_moe/moe_subject.h"
#include "bench/limits/timing.h"
#include "ops/cpu/kernels.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/plan/feature_matrix.h"
#include "schedule/layout/row_dtype.h"
#include "threads/thread_pool.h"

namespace afd::bench {
namespace {

constexpr int kWarmUps = 2;

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Options {
    MoeSizes sizes;
    std::string prepare_finalize;  // Empty: all.
    std::string experts;
    unsigned num_threads = 1;
    int num_calls = 20;
};

// Times of every call.
struct Samples {
    std::vector<double> stages[ops::kNumMoeStages];
    std::vector<double> total;

    void add(const ops::StageProfile& profile, double total_us) {
        for (size_t i = 0; i < ops::kNumMoeStages; ++i) {
            stages[i].push_back(static_cast<double>(profile.nanoseconds[i]) / 1000);
        }
        total.push_back(total_us);
    }
};

// A part that routes is timed with rows that come without ids.
ops::FusedMoeConfig config_of(const ops::MoePair& pair, const MoeSubject& subject) {
    ops::FusedMoeConfig config = subject.config();
    config.needs_routing = pair.prepare_finalize->capability->routes;
    return config;
}

Result<Samples> measure(const ops::MoePair& pair, const Options& options, ops::Parallel& threads) {
    const MoeSubject subject(options.sizes, pair.quantisation);
    const bool is_remote = pair.prepare_finalize->capability->is_remote;
    const ops::FusedMoeConfig config = config_of(pair, subject);
    ops::MoeInput input = subject.input();
    if (config.needs_routing) {
        input.topk_ids = nullptr;
        input.topk_weights = nullptr;
    }
    ops::StageProfile here;
    ops::StageProfile there;
    std::unique_ptr<MoeRank> rank;
    std::unique_ptr<ops::PrepareFinalize> local;
    std::unique_ptr<ops::Experts> experts;
    MoeSubject::Shard shard;
    if (is_remote) {
        AFD_ASSIGN(rank, MoeRank::start(subject, pair, threads, &there));
        experts = std::make_unique<ops::RemoteExperts>(*pair.experts->capability);
    } else {
        shard = subject.shard(0, 1);
        local = pair.prepare_finalize->make(subject.config(), threads);
        experts = pair.experts->make(shard.setup());
    }
    ops::PrepareFinalize& prepare_finalize = is_remote ? rank->prepare_finalize() : *local;
    AFD_ASSIGN(ops::FusedMoe moe,
               ops::FusedMoe::compose(prepare_finalize, *experts, config, threads));
    moe.set_profile(&here);
    std::vector<ops::Bf16> out(size_t{options.sizes.num_tokens} * options.sizes.hidden);
    const auto rows =
        ops::make_rows(out.data(), options.sizes.num_tokens, size_t{options.sizes.hidden});
    Samples samples;
    // One call of the plain loops takes as long as hundreds of the others.
    const bool is_slow = pair.experts->capability->name == "reference";
    for (int call = is_slow ? 0 : -kWarmUps; call < (is_slow ? 1 : options.num_calls); ++call) {
        // The rank's last round is acknowledged before its slot is free: `there` is at rest.
        while (!moe.slot_free(0)) std::this_thread::yield();
        here = there = {};
        const Clock::time_point start = Clock::now();
        AFD_TRY(is_remote ? rank->apply(moe, input, rows, here) : moe.apply(input, rows));
        const double total_us = microseconds_since(start);
        while (!moe.slot_free(0)) std::this_thread::yield();
        for (size_t i = 0; i < ops::kNumMoeStages; ++i) {
            here.nanoseconds[i] += there.nanoseconds[i];
        }
        if (call >= 0) samples.add(here, total_us);
    }
    return samples;
}

// The activation of all slots alone, by one thread, shared out.
double activation_alone(const Options& options) {
    constexpr size_t kColumns = 16;
    const auto swiglu_row = ops::cpu::kernels(ops::best_numeric_class()).swiglu_row;
    const size_t num_blocks = size_t{options.sizes.num_tokens} * options.sizes.top_k *
                              ((options.sizes.intermediate + kColumns - 1) / kColumns);
    alignas(64) float sums[2 * kColumns];
    for (size_t i = 0; i < 2 * kColumns; ++i) sums[i] = 0.1f * static_cast<float>(i);
    std::vector<ops::Bf16> h(num_blocks * kColumns);
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < num_blocks; ++i) {
        swiglu_row(sums, sums + kColumns, kColumns, h.data() + i * kColumns);
    }
    return microseconds_since(start) / options.num_threads;
}

// Rows copied to the places of another order, by one thread, shared out.
double unpermute_alone(const Options& options) {
    const size_t num_rows = size_t{options.sizes.num_tokens} * options.sizes.top_k;
    const size_t hidden = options.sizes.hidden;
    const std::vector<ops::Bf16> rows(num_rows * hidden);
    std::vector<ops::Bf16> out(num_rows * hidden);
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < num_rows; ++i) {
        // 7919 is a prime larger than any batch's common factor with the rows.
        std::copy_n(&rows[i * hidden], hidden, &out[i * 7919 % num_rows * hidden]);
    }
    return microseconds_since(start) / options.num_threads;
}

std::string number(double value) {
    return value < 0.05 ? "-" : fmt::format("{:.1f}", value);
}

void print_row(const ops::MoePair& pair, const Samples& samples, const Options& options) {
    const std::string_view dispatch = pair.prepare_finalize->capability->name;
    const std::string_view experts = pair.experts->capability->name;
    const bool has_kernels = experts != "reference";
    std::string line = fmt::format(
        "{:<21} {:<12} {:<5}",
        dispatch,
        experts,
        pair.quantisation == ops::ExpertQuantisation::kNone ? "bf16" : name_of(pair.quantisation));
    double covered = 0;
    for (size_t i = 0; i < ops::kNumMoeStages; ++i) {
        const auto stage = static_cast<ops::MoeStage>(i);
        const double value = median(samples.stages[i]);
        covered += value;
        std::string text = number(value);
        if (stage == ops::MoeStage::kActivation && has_kernels) {
            text = fmt::format("({})", number(activation_alone(options)));
        } else if (stage == ops::MoeStage::kUnpermute && has_kernels && dispatch == "local") {
            text = fmt::format("({})", number(unpermute_alone(options)));
        }
        line += fmt::format(" {:>10}", text);
    }
    const double total = median(samples.total);
    const bool is_remote = pair.prepare_finalize->capability->is_remote;
    fmt::print("{} {:>10} {:>10}\n", line, is_remote ? "" : number(total - covered), number(total));
    std::fflush(stdout);
}

void print_head(const Options& options) {
    const MoeSizes& s = options.sizes;
    fmt::print(
        "{} tokens, top-{} of {} experts, hidden {}, intermediate {}, {} threads, {}, medians of "
        "{} calls in microseconds\n",
        s.num_tokens,
        s.top_k,
        s.num_experts,
        s.hidden,
        s.intermediate,
        options.num_threads,
        name_of(ops::best_numeric_class()),
        options.num_calls);
    std::string line = fmt::format("{:<21} {:<12} {:<5}", "dispatch", "experts", "w");
    for (size_t i = 0; i < ops::kNumMoeStages; ++i) {
        line += fmt::format(" {:>10}", name_of(static_cast<ops::MoeStage>(i)));
    }
    fmt::print("{} {:>10} {:>10}\n", line, "other", "total");
}

// A name that is given has to exist.
Result<> check_names(const Options& options) {
    if (!options.prepare_finalize.empty()) {
        AFD_TRY(ops::find_prepare_finalize(options.prepare_finalize));
    }
    if (!options.experts.empty()) AFD_TRY(ops::find_experts(options.experts));
    return {};
}

int fail(const Error& error) {
    fmt::print(stderr, "bench_fused_moe: {}\n", error.message);
    return EXIT_FAILURE;
}

bool is_asked_for(const ops::MoePair& pair, const Options& options) {
    const auto matches = [](const std::string& wanted, std::string_view name) {
        return wanted.empty() || wanted == name;
    };
    return matches(options.prepare_finalize, pair.prepare_finalize->capability->name) &&
           matches(options.experts, pair.experts->capability->name);
}

int run(const Options& options) {
    if (const Result<> checked = check_names(options); !checked.ok()) return fail(checked.error());
    threads::ThreadPool threads(options.num_threads, 50, false, {});
    print_head(options);
    std::string refused;
    int num_run = 0;
    for (const ops::MoePair& pair : ops::moe_pairs()) {
        if (!is_asked_for(pair, options)) continue;
        const auto legal =
            check_composition(*pair.prepare_finalize,
                              *pair.experts,
                              config_of(pair, MoeSubject(options.sizes, pair.quantisation)));
        if (!legal.ok()) {
            refused = legal.error().message;
            continue;
        }
        const auto samples = measure(pair, options, threads);
        if (!samples.ok()) return fail(samples.error());
        print_row(pair, samples.value(), options);
        ++num_run;
    }
    return num_run > 0 ? EXIT_SUCCESS : fail({Code::kFailedPrecondition, refused});
}

std::map<std::string, schedule::RowDtype> row_dtypes_by_name() {
    std::map<std::string, schedule::RowDtype> by_name;
    for (const schedule::RowDtype dtype :
         {schedule::RowDtype::kBf16, schedule::RowDtype::kInt8, schedule::RowDtype::kFp8}) {
        by_name.emplace(name_of(dtype), dtype);
    }
    return by_name;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Times the stages of a fused-MoE layer for every pair of parts.",
                 "bench_fused_moe");
    Options options;
    app.add_option("--dispatch", options.prepare_finalize, "This PrepareFinalize part only");
    app.add_option("--experts", options.experts, "This Experts part only");
    app.add_option("--tokens", options.sizes.num_tokens)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--hidden", options.sizes.hidden)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--intermediate", options.sizes.intermediate)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--num-experts", options.sizes.num_experts)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--top-k", options.sizes.top_k)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--chunk", options.sizes.chunk_tokens, "Tokens of a chunk; 0: no chunks")
        ->capture_default_str();
    app.add_option("--dispatch-dtype", options.sizes.dispatch_dtype, "How rows travel")
        ->transform(CLI::CheckedTransformer(row_dtypes_by_name()));
    app.add_flag(
        "--row-checksums", options.sizes.row_checksums, "Rows between processes are sealed");
    app.add_option("--threads", options.num_threads)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--calls", options.num_calls)->check(CLI::PositiveNumber)->capture_default_str();
    app.footer("Example: bench_fused_moe --dispatch local --experts grouped_int8 --tokens 32");
    CLI11_PARSE(app, argc, argv);
    return run(options);
}

}  // namespace afd::bench

int main(int argc, char** argv) {
    return afd::bench::main(argc, argv);
}
