// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/offsets.h"

#include <algorithm>
#include <string>

#include "ops/record/operator_check.h"

namespace afd::ops {
namespace {

constexpr int64_t kOffOrOn[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"one_buffer",
     AttributeKind::kBool,
     "false",
     kOffOrOn,
     0,
     0,
     "base counts from a rank's own segment; from one buffer that holds all segments"},
};

constexpr TensorSpec kTensors[] = {
    {"send_counts",
     TensorRole::kInput,
     {DType::kInt32},
     "[A, F, E]",
     "send_counts of every sender, for F ranks with E local experts"},
    {"base",
     TensorRole::kOutput,
     {DType::kInt64},
     "[A, F, E]",
     "first row granted to each sender for each rank and local expert"},
    {"recv_counts",
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[F, A]",
     "rows that each rank gets of each sender"},
    {"recv_total", TensorRole::kOutput, {DType::kInt64}, "[F]", "rows of each rank's segment"},
    {"group_list",
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[F, E]",
     "each rank's rows of each local expert"},
};

constexpr std::string_view kRules[] = {"send_counts are not negative."};

template <typename T>
void clear(const TensorView& view) {
    std::fill_n(static_cast<T*>(view.data), view.num_elements(), T{0});
}

}  // namespace

const OperatorSpec kTwoPhaseOffsetsSpec = {
    "two_phase_offsets",
    "between the phases of the two-phase dispatch: exact segment sizes and granted rows",
    "base[s, r, e] = rows of rank r before local expert e of sender s; recv_total[r] = all its "
    "rows",
    "two_phase_dispatch.md; operators.md 7",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<> check_two_phase_offsets(const TwoPhaseOffsetsRequest& r) {
    OperatorCheck check(kTwoPhaseOffsetsSpec);
    check.attribute("one_buffer", int64_t{r.one_buffer});
    check.tensor("send_counts", r.send_counts);
    check.tensor("base", r.base);
    check.tensor("recv_counts", r.recv_counts);
    check.tensor("recv_total", r.recv_total);
    check.tensor("group_list", r.group_list);
    AFD_TRY(check.finish());
    const auto* counts = static_cast<const int32_t*>(r.send_counts.data);
    for (size_t i = 0; i < r.send_counts.num_elements(); ++i) {
        if (counts[i] >= 0) continue;
        check.require(false,
                      "send_counts[" + std::to_string(i) + "] is " + std::to_string(counts[i]) +
                          "; it must not be negative");
    }
    return check.finish();
}

Result<> two_phase_offsets(const TwoPhaseOffsetsRequest& r, std::span<std::byte>, Parallel&) {
    AFD_TRY(check_two_phase_offsets(r));
    const size_t num_senders = r.send_counts.shape[0];
    const size_t num_ranks = r.send_counts.shape[1];
    const size_t num_experts = r.send_counts.shape[2];
    const auto* counts = static_cast<const int32_t*>(r.send_counts.data);
    auto* base = static_cast<int64_t*>(r.base.data);
    auto* recv_counts = static_cast<int64_t*>(r.recv_counts.data);
    auto* recv_total = static_cast<int64_t*>(r.recv_total.data);
    auto* group_list = static_cast<int64_t*>(r.group_list.data);
    const bool has_counts = r.recv_counts.num_elements() > 0;
    const bool has_groups = r.group_list.num_elements() > 0;
    clear<int64_t>(r.recv_counts);
    int64_t next = 0;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
        if (!r.one_buffer) next = 0;
        const int64_t first = next;
        for (size_t expert = 0; expert < num_experts; ++expert) {
            const int64_t first_of_expert = next;
            for (size_t sender = 0; sender < num_senders; ++sender) {
                const size_t i = (sender * num_ranks + rank) * num_experts + expert;
                base[i] = next;
                next += counts[i];
                if (has_counts) recv_counts[rank * num_senders + sender] += counts[i];
            }
            if (has_groups) group_list[rank * num_experts + expert] = next - first_of_expert;
        }
        recv_total[rank] = next - first;
    }
    return {};
}

}  // namespace afd::ops
