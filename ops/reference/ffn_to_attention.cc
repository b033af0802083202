// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/ffn_to_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ops/reference/quantise.h"
#include "proto/failure.h"
#include "schedule/context/schedule_context.h"

namespace afd::ops::reference {

Result<> ffn_to_attention(const FfnToAttentionRequest& r) {
    AFD_TRY(check_ffn_to_attention(r));
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    const bool has_count = r.actual_token_num.num_elements() > 0;
    const size_t num_rows =
        has_count ? static_cast<size_t>(*static_cast<const int64_t*>(r.actual_token_num.data))
                  : r.x.shape[0];
    const size_t hidden = r.x.shape[1];
    const auto at = [](const ConstTensorView& ids, size_t row) {
        return static_cast<size_t>(static_cast<const int32_t*>(ids.data)[row]);
    };
    std::vector<std::array<size_t, 4>> places;
    for (size_t row = 0; row < num_rows; ++row) {
        places.push_back({at(r.session_ids, row),
                          at(r.micro_batch_ids, row),
                          at(r.token_ids, row),
                          at(r.expert_offsets, row)});
    }
    std::sort(places.begin(), places.end());
    const auto twice = std::adjacent_find(places.begin(), places.end());
    if (twice != places.end()) {
        const auto& [session, m, token, slot] = *twice;
        return invalid_argument(
            "ffn_to_attention: expert_offsets has slot {} twice for session {}, micro-batch {}, "
            "token {}; each slot takes one row",
            with(slot, session, m, token));
    }
    for (size_t row = 0; row < num_rows; ++row) {
        const size_t session = at(r.session_ids, row);
        const size_t m = at(r.micro_batch_ids, row);
        const size_t slot =
            (m * common.micro_batch_size + at(r.token_ids, row)) * common.selected_expert_num +
            at(r.expert_offsets, row);
        std::byte* window = r.attention_windows[session].data();
        std::byte* out = window + attention.token_data_buf + slot * common.ffn_to_attn_token_size;
        const DType dtype = r.token_dtype == 0 ? DType::kFp16 : DType::kBf16;
        for (size_t i = 0; i < hidden; ++i) {
            set_element(dtype, out, i, element(r.x.dtype, r.x.data, row * hidden + i));
        }
        if (r.routing_weights.num_elements() > 0) {
            const float weight = static_cast<const float*>(r.routing_weights.data)[row];
            std::memcpy(out + 2 * hidden, &weight, sizeof(weight));
        }
        int32_t round = 1;
        if (r.rounds.num_elements() > 0) {
            round =
                static_cast<const int32_t*>(r.rounds.data)[session * common.micro_batch_num + m];
        }
        std::memcpy(
            window + attention.token_info_buf + slot * sizeof(round), &round, sizeof(round));
    }
    return {};
}

}  // namespace afd::ops::reference
