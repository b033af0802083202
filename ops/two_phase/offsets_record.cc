// SPDX-License-Identifier: Apache-2.0

// The record of TwoPhaseOffsets and the check of a request against it.

#include <string>

#include "ops/record/operator_check.h"
#include "ops/two_phase/offsets.h"

namespace afd::ops {
namespace {

using Request = TwoPhaseOffsetsRequest;

constexpr int64_t kOffOrOn[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"one_buffer",
     bind<Request, &Request::one_buffer>(),
     "false",
     kOffOrOn,
     0,
     0,
     "base counts from a rank's own segment; from one buffer that holds all segments"},
};

constexpr TensorSpec kTensors[] = {
    {"send_counts",
     bind<Request, &Request::send_counts>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[A, F, E]",
     "send_counts of every sender, for F ranks with E local experts"},
    {"base",
     bind<Request, &Request::base>(),
     TensorRole::kOutput,
     {DType::kInt64},
     "[A, F, E]",
     "first row granted to each sender for each rank and local expert"},
    {"recv_counts",
     bind<Request, &Request::recv_counts>(),
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[F, A]",
     "rows that each rank gets of each sender"},
    {"recv_total",
     bind<Request, &Request::recv_total>(),
     TensorRole::kOutput,
     {DType::kInt64},
     "[F]",
     "rows of each rank's segment"},
    {"group_list",
     bind<Request, &Request::group_list>(),
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[F, E]",
     "each rank's rows of each local expert"},
};

constexpr std::string_view kRules[] = {"send_counts are not negative."};

}  // namespace

const RecordOf<TwoPhaseOffsetsRequest> kTwoPhaseOffsetsSpec = {
    {"two_phase_offsets",
     "between the phases of the two-phase dispatch: exact segment sizes and granted rows",
     "base[s, r, e] = rows of rank r before local expert e of sender s; recv_total[r] = all its "
     "rows",
     "seed two_phase_dispatch; docs/specification.md, section 7",
     kAttributes,
     kTensors,
     kRules,
     {}}};

Result<> check_two_phase_offsets(const TwoPhaseOffsetsRequest& r) {
    OperatorCheck check(kTwoPhaseOffsetsSpec, r);
    check.attributes();
    check.tensors();
    AFD_TRY(check.finish());
    const auto* counts = static_cast<const int32_t*>(r.send_counts.data);
    for (size_t i = 0; i < r.send_counts.num_elements(); ++i) {
        if (counts[i] >= 0) continue;
        check.require(false, "send_counts[{}] is {}; it must not be negative", with(i, counts[i]));
    }
    return check.finish();
}

}  // namespace afd::ops
