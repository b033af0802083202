// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/activation_metadata.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::ops {
namespace {

uint64_t sum_of(std::span<const int32_t> counts) {
    uint64_t sum = 0;
    for (size_t e = 0; e < counts.size(); ++e) {
        AFD_ASSERT(counts[e] >= 0, "expert %zu has %d rows", e, counts[e]);
        sum += static_cast<uint64_t>(counts[e]);
    }
    return sum;
}

uint64_t rows_in(const StandardActivations& standard) {
    const std::span ids(standard.local_ids, standard.x.num_rows() * standard.num_slots);
    return static_cast<uint64_t>(std::count_if(ids.begin(), ids.end(), [](LocalExpert id) {
        return state_of(id) == AssignmentState::kValid;
    }));
}

uint64_t rows_in(const BatchedActivations& batched) {
    uint64_t sum = 0;
    for (size_t e = 0; e < batched.num_local_experts; ++e) sum += batched.num_tokens_of(e).value();
    return sum;
}

uint64_t rows_in(const GroupedActivations& grouped) {
    uint64_t sum = 0;
    for (const ExpertGroup& group : grouped.groups) sum += static_cast<uint64_t>(group.count);
    return sum;
}

uint64_t rows_in(const RemoteActivations&) {
    AFD_ASSERT(false, "rows that left have no metadata here");
    return 0;
}

}  // namespace

// Three ways of counting the same rows, before the experts run: a part that hands over wrong counts
// would otherwise write rows of one token over those of another.
void assert_consistent(const ActivationMetadata& metadata, const Activations& activations) {
    const size_t total = metadata.total.value();
    AFD_ASSERT(!metadata.expert_counts.empty() && metadata.source_prefix.size() >= 2,
               "metadata of %zu experts and %zu prefixes",
               metadata.expert_counts.size(),
               metadata.source_prefix.size());
    const uint64_t of_experts = sum_of(metadata.expert_counts);
    AFD_ASSERT(of_experts == total, "the experts have %lu rows of %zu", of_experts, total);
    const std::span<const int32_t> prefix = metadata.source_prefix;
    AFD_ASSERT(prefix.front() == 0 && std::is_sorted(prefix.begin(), prefix.end()),
               "the sources' rows begin at %d and do not ascend",
               prefix.front());
    AFD_ASSERT(static_cast<size_t>(prefix.back()) == total,
               "the sources have %d rows of %zu",
               prefix.back(),
               total);
    const uint64_t rows =
        std::visit([](const auto& format) { return rows_in(format); }, activations);
    AFD_ASSERT(rows == total, "the activations have %lu rows of %zu", rows, total);
}

}  // namespace afd::ops
