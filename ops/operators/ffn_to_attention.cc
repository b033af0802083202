// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/ffn_to_attention.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/operators/context_check.h"
#include "ops/operators/context_copy.h"
#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"
#include "proto/failure.h"
#include "schedule/wait/flag.h"

namespace afd::ops {
namespace {

int32_t id_of(const ConstTensorView& ids, size_t row) {
    return static_cast<const int32_t*>(ids.data)[row];
}

// Index of a row's slot in its session's window.
size_t slot_of(const FfnToAttentionRequest& r, size_t row) {
    const auto& common = r.context->common;
    const size_t token =
        static_cast<size_t>(id_of(r.micro_batch_ids, row)) * common.micro_batch_size +
        static_cast<size_t>(id_of(r.token_ids, row));
    return token * common.selected_expert_num + static_cast<size_t>(id_of(r.expert_offsets, row));
}

int32_t round_of(const FfnToAttentionRequest& r, size_t row) {
    if (r.rounds.num_elements() == 0) return 1;
    return id_of(r.rounds,
                 static_cast<size_t>(id_of(r.session_ids, row)) * r.rounds.shape[1] +
                     static_cast<size_t>(id_of(r.micro_batch_ids, row)));
}

Result<> check_slots_differ(const FfnToAttentionRequest& r, uint64_t* places) {
    const size_t num_rows = num_rows_of(r);
    const auto& common = r.context->common;
    const uint64_t slots_per_window =
        uint64_t{common.micro_batch_num} * common.micro_batch_size * common.selected_expert_num;
    for (size_t row = 0; row < num_rows; ++row) {
        places[row] =
            static_cast<uint64_t>(id_of(r.session_ids, row)) * slots_per_window + slot_of(r, row);
    }
    // Sorted because the rows come in any order and windows are too large for a table of their
    // slots. Two rows for one slot would be written by two threads at once.
    std::sort(places, places + num_rows);
    const uint64_t* twice = std::adjacent_find(places, places + num_rows);
    if (twice == places + num_rows) return {};
    const uint64_t slot = *twice % slots_per_window;
    return invalid_argument(
        "ffn_to_attention: expert_offsets has slot {} twice for session {}, micro-batch {}, token "
        "{}; each slot takes one row",
        with(slot % common.selected_expert_num,
             *twice / slots_per_window,
             slot / common.selected_expert_num / common.micro_batch_size,
             slot / common.selected_expert_num % common.micro_batch_size));
}

template <typename From, typename To>
void convert_row(const From* x, size_t count, To* out) {
    if constexpr (std::is_same_v<From, To>) {
        std::memcpy(out, x, count * sizeof(To));
    } else {
        for (size_t i = 0; i < count; ++i) out[i] = round_to<To>(to_float(x[i]));
    }
}

void put_row(const FfnToAttentionRequest& r, size_t row) {
    const size_t hidden = r.x.shape[1];
    const size_t slot = slot_of(r, row);
    std::byte* window = r.attention_windows[static_cast<size_t>(id_of(r.session_ids, row))].data();
    std::byte* out = window + r.context->attention.token_data_buf +
                     slot * r.context->common.ffn_to_attn_token_size;
    with_float_type(r.x.dtype, [&](auto zero) {
        const auto* x = static_cast<const decltype(zero)*>(r.x.data) + row * hidden;
        if (r.token_dtype == 0) {
            convert_row(x, hidden, reinterpret_cast<Fp16*>(out));
        } else {
            convert_row(x, hidden, reinterpret_cast<Bf16*>(out));
        }
    });
    if (r.routing_weights.num_elements() > 0) {
        std::memcpy(out + 2 * hidden,
                    static_cast<const float*>(r.routing_weights.data) + row,
                    sizeof(float));
    }
    auto* flags = reinterpret_cast<int32_t*>(window + r.context->attention.token_info_buf);
    // After the row and its weight: who sees the flag sees both.
    schedule::publish_release(flags[slot], round_of(r, row));
}

}  // namespace

size_t ffn_to_attention_workspace_bytes(size_t num_rows) {
    return workspace_bytes_of<uint64_t>(num_rows);
}

Result<> ffn_to_attention(const FfnToAttentionRequest& request,
                          std::span<std::byte> workspace,
                          Parallel& parallel) {
    ContextCopy context(request.context);
    FfnToAttentionRequest r = request;
    r.context = context.get();
    AFD_TRY(check_ffn_to_attention(r));
    const size_t num_rows = num_rows_of(r);
    WorkspaceCursor cursor(workspace);
    AFD_TRY(check_slots_differ(r, cursor.take<uint64_t>(num_rows)));
    const auto put = [&](size_t first, size_t last, unsigned) {
        for (size_t row = first; row < last; ++row) put_row(r, row);
    };
    for_rows(parallel, num_rows, 2 * r.x.shape[1] / kCopiedBytesPerElement, put);
    return {};
}

}  // namespace afd::ops
