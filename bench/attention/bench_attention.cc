// SPDX-License-Identifier: Apache-2.0

// bench_attention [--filter TEXT]: attention, head and sampling against the limits of this machine.
//
//   decode/<model>/context:<S>/threads:<T>   one token of each of T sequences, over caches (latent,
//       or of grouped heads) that together are larger than four times the last-level cache. ratio:
//       time divided by max(bytes of cache and weights / read bandwidth, operations / bf16 peak);
//       at most 1.3.
//   prefill/<model>/threads:<T>              512 tokens through the whole attention block: norm,
//       prolog, attention, output projection, residual. ratio: operations a second divided by the
//       bf16 peak; to be at least 0.6.
//   head/..., sample/...                     32 rows through lm_head, and the choice of one token
//       of each row. ratio: sampling divided by the head on as many threads.
// Limits are those of the T threads together. A case is several rounds of read bandwidth, bf16 peak
// and our own work right after one another; every figure is the median of the rounds. The last
// column is the flag's round trip before and after: it moves with the virtual cores
// (flag_round_trip.h).

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
#include "ops/format/numeric_class.h"

namespace afd::bench {
namespace {

void run_all(std::string_view filter) {
    AttentionReport report(filter);
    for (unsigned num_threads = 1; num_threads <= report.num_cores(); num_threads *= 2) {
        for (const AttentionModel& model : kAttentionModels) {
            for (const size_t context : {256, 4096, 32768}) {
                for (const ops::KvDtype dtype :
                     {ops::KvDtype::kBf16, ops::KvDtype::kInt8, ops::KvDtype::kFp8}) {
                    run_decode(report, model, context, num_threads, dtype);
                }
            }
            run_prefill(report, model, num_threads);
        }
        for (const GroupedModel& model : kGroupedModels) {
            for (const size_t context : {256, 4096, 32768}) {
                run_grouped_decode(report, model, context, num_threads);
            }
            run_grouped_prefill(report, model, num_threads);
        }
        run_head(report, num_threads);
    }
    if (!ops::is_native(ops::NumericClass::kAmx)) {
        std::printf("with AMX: not measured here, %s\n",
                    std::string(ops::amx_support().reason).c_str());
    }
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    const std::string_view flag = argc == 3 ? argv[1] : "";
    if (argc != 1 && flag != "--filter") {
        std::fprintf(stderr, "usage: %s [--filter TEXT]\n", argv[0]);
        return 2;
    }
    afd::bench::run_all(argc == 3 ? argv[2] : "");
    return 0;
}
