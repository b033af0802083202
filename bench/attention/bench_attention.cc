// SPDX-License-Identifier: Apache-2.0

// bench_attention [--filter TEXT] [--numeric-class NAME]: attention, head and sampling against the
// limits of this machine. --filter runs the rows whose name holds TEXT; without a class, the best
// one of this processor computes.
//
//   decode/<model>/context:<S>/threads:<T>[/kv:<dtype>]   one token of each of T sequences, over
//       caches (latent, or of grouped heads; in bf16, int8 or fp8) that together are larger than
//       four times the last-level cache, of which a layer with a window reads what that leaves.
//       ratio: time divided by max(bytes of cache and weights / read bandwidth, operations / peak);
//       at most 1.3.
//   prefill/<model>/threads:<T>              512 tokens through the whole attention block: norm,
//       prolog, attention, output projection, residual. ratio: operations a second divided by the
//       peak; to be at least 0.6.
//   head/..., sample/...                     32 rows through lm_head, and the choice of one token
//       of each row. ratio: sampling divided by the head on as many threads.
// Limits are those of the T threads together. The peak is that of the multiply-adds that the class
// has for bf16 (bench/limits/limit_loops.h), also where the processor has faster ones; what is the
// same in all classes (norms, the expansion of a quantised cache) runs on the best one's
// instructions. A case is several rounds of read bandwidth, peak and our own work right after one
// another; every figure is the median of the rounds. The last column is the flag's round trip
// before and after: it moves with the virtual cores (flag_round_trip.h).

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "bench/attention/attention_decode.h"
#include "bench/attention/attention_head.h"
#include "bench/attention/attention_model.h"
#include "bench/attention/attention_prefill.h"
#include "bench/attention/attention_report.h"
#include "bench/attention/grouped_decode.h"
#include "bench/attention/grouped_model.h"
#include "bench/attention/grouped_prefill.h"
#include "ops/format/amx_support.h"
#include "ops/format/kv_dtype.h"
#include "ops/format/numeric_class.h"

namespace afd::bench {
namespace {

constexpr size_t kContexts[] = {256, 4096, 32768};
constexpr ops::KvDtype kCaches[] = {ops::KvDtype::kBf16, ops::KvDtype::kInt8, ops::KvDtype::kFp8};

void run_grouped(AttentionReport& report, const GroupedModel& model, unsigned num_threads) {
    for (const size_t context : kContexts) {
        // Beyond its window a context has no influence.
        if (model.window > 0 && context != 4096) continue;
        for (const ops::KvDtype dtype : kCaches) {
            run_grouped_decode(report, model, context, num_threads, dtype);
        }
    }
    run_grouped_prefill(report, model, num_threads);
}

void run_all(std::string_view filter, ops::NumericClass numeric_class) {
    AttentionReport report(filter, numeric_class);
    for (unsigned num_threads = 1; num_threads <= report.num_cores(); num_threads *= 2) {
        for (const AttentionModel& model : kAttentionModels) {
            for (const size_t context : kContexts) {
                for (const ops::KvDtype dtype : kCaches) {
                    run_decode(report, model, context, num_threads, dtype);
                }
            }
            run_prefill(report, model, num_threads);
        }
        for (const GroupedModel& model : kGroupedModels) run_grouped(report, model, num_threads);
        run_head(report, num_threads);
    }
    const bool is_best = numeric_class == ops::best_numeric_class();
    if (is_best && !ops::is_native(ops::NumericClass::kAmx)) {
        std::printf("with AMX: not measured here, %s\n",
                    std::string(ops::amx_support().reason).c_str());
    }
}

int main(int argc, char** argv) {
    CLI::App app("Times attention, head and sampling beside the machine's limits.",
                 "bench_attention");
    std::string filter;
    app.add_option("--filter", filter, "Rows whose name holds this text only");
    std::string class_name(ops::name_of(ops::best_numeric_class()));
    app.add_option("--numeric-class", class_name, "Kernels that run")
        ->capture_default_str()
        ->check([](const std::string& name) {
            const auto named = ops::parse_numeric_class(name);
            const bool can_run = named.has_value() && ops::is_native(*named);
            return can_run ? std::string() : name + " is no class of this processor";
        });
    app.footer("Example: bench_attention --filter decode/ --numeric-class avx2");
    CLI11_PARSE(app, argc, argv);
    run_all(filter, *ops::parse_numeric_class(class_name));
    return 0;
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    return afd::bench::main(argc, argv);
}
