// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/offsets.h"

#include <algorithm>

namespace afd::ops {
namespace {

template <typename T>
void clear(const TensorView& view) {
    std::fill_n(static_cast<T*>(view.data), view.num_elements(), T{0});
}

}  // namespace

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
                // By local expert, then by sender: the experts find the rows of a key together,
                // whoever sent them.
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
