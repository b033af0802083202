// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/ffn_to_attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "ops/operators/context_check.h"
#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {
namespace {

constexpr int64_t kOffOrOn[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"token_dtype", AttributeKind::kInt, "0", kOffOrOn, 0, 0, "rows become fp16; bf16"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     TensorRole::kInput,
     {DType::kInt8},
     "[1024]",
     "dimensions, and the places of the buffers in every attention window"},
    {"attention_windows", TensorRole::kInPlace, {DType::kUint8}, "[A, ?]", "windows of sessions"},
    {"x", TensorRole::kInput, {DType::kBf16, DType::kFp16, DType::kFp32}, "[Y, H]", "result rows"},
    {"session_ids", TensorRole::kInput, {DType::kInt32}, "[Y]", "session of each row"},
    {"micro_batch_ids", TensorRole::kInput, {DType::kInt32}, "[Y]", "micro-batch of each row"},
    {"token_ids", TensorRole::kInput, {DType::kInt32}, "[Y]", "index in the micro-batch"},
    {"expert_offsets", TensorRole::kInput, {DType::kInt32}, "[Y]", "slot k"},
    {"actual_token_num",
     TensorRole::kOptionalInput,
     {DType::kInt64},
     "[1]",
     "rows that are there; not given: Y"},
    {"routing_weights",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[Y]",
     "follow the values of their rows"},
    {"rounds",
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[A, M]",
     "flag of each session and micro-batch; not given: 1"},
};

constexpr std::string_view kRules[] = {
    "A is session_num and M micro_batch_num of the context.",
    "session_ids, micro_batch_ids, token_ids and expert_offsets of the first actual_token_num rows "
    "are within session_num, micro_batch_num, micro_batch_size and selected_expert_num.",
    "No two of these rows go to the same slot; a round is not 0.",
    "ffn_to_attn_token_size is a positive multiple of 512 that holds a row: H values, and a fp32 "
    "weight with routing_weights.",
    "token_info_buf and token_data_buf lie inside every window.",
};

int32_t id_of(const ConstTensorView& ids, size_t row) {
    return static_cast<const int32_t*>(ids.data)[row];
}

size_t num_rows_of(const FfnToAttentionRequest& r) {
    if (r.actual_token_num.num_elements() == 0) return r.x.shape[0];
    return static_cast<size_t>(*static_cast<const int64_t*>(r.actual_token_num.data));
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

void check_windows(OperatorCheck& check, const FfnToAttentionRequest& r) {
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    check_dimensions(check, common);
    check.require(r.attention_windows.size() == common.session_num,
                  "attention_windows are " + std::to_string(r.attention_windows.size()) +
                      "; there must be session_num, " + std::to_string(common.session_num));
    const uint64_t weight_bytes = r.routing_weights.num_elements() > 0 ? sizeof(float) : 0;
    check_token_size(check,
                     "ffn_to_attn_token_size",
                     common.ffn_to_attn_token_size,
                     2 * uint64_t{check.size("H")} + weight_bytes);
    const uint64_t slots = uint64_t{common.micro_batch_size} * common.selected_expert_num;
    for (const std::span<std::byte>& window : r.attention_windows) {
        check_buffer(check,
                     {"token_info_buf", attention.token_info_buf, attention.token_info_buf_size, 4},
                     {common.micro_batch_num, slots, sizeof(int32_t)},
                     window.size(),
                     "an attention window");
        check_buffer(check,
                     {"token_data_buf", attention.token_data_buf, attention.token_data_buf_size, 2},
                     {common.micro_batch_num, slots, common.ffn_to_attn_token_size},
                     window.size(),
                     "an attention window");
    }
}

void check_rows(OperatorCheck& check, const FfnToAttentionRequest& r) {
    const auto& common = r.context->common;
    const struct {
        const char* name;
        const ConstTensorView& ids;
        const char* limit_name;
        uint32_t limit;
    } lists[] = {
        {"session_ids", r.session_ids, "session_num", common.session_num},
        {"micro_batch_ids", r.micro_batch_ids, "micro_batch_num", common.micro_batch_num},
        {"token_ids", r.token_ids, "micro_batch_size", common.micro_batch_size},
        {"expert_offsets", r.expert_offsets, "selected_expert_num", common.selected_expert_num},
    };
    for (const auto& list : lists) {
        for (size_t row = 0; row < num_rows_of(r); ++row) {
            const int32_t id = id_of(list.ids, row);
            if (id >= 0 && static_cast<uint32_t>(id) < list.limit) continue;
            return check.require(false,
                                 std::string(list.name) + "[" + std::to_string(row) + "] is " +
                                     std::to_string(id) + "; it must be below " + list.limit_name +
                                     ", " + std::to_string(list.limit));
        }
    }
    for (size_t i = 0; i < r.rounds.num_elements(); ++i) {
        if (id_of(r.rounds, i) != 0) continue;
        return check.require(false, "rounds[" + std::to_string(i) + "] is 0; it must not be");
    }
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
    std::sort(places, places + num_rows);
    const uint64_t* twice = std::adjacent_find(places, places + num_rows);
    if (twice == places + num_rows) return {};
    const uint64_t slot = *twice % slots_per_window;
    return Error{Code::kInvalidArgument,
                 "ffn_to_attention: two rows go to session " +
                     std::to_string(*twice / slots_per_window) + ", micro-batch " +
                     std::to_string(slot / common.selected_expert_num / common.micro_batch_size) +
                     ", token " +
                     std::to_string(slot / common.selected_expert_num % common.micro_batch_size) +
                     ", slot " + std::to_string(slot % common.selected_expert_num) +
                     "; each slot takes one"};
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
    // Release: partner is the attention worker's look at the flag before the row.
    std::atomic_ref<int32_t>(flags[slot]).store(round_of(r, row), std::memory_order_release);
}

}  // namespace

const OperatorSpec kFfnToAttentionSpec = {
    "ffn_to_attention",
    "result rows, written back into the windows of the sessions that they belong to",
    "window[session_ids[i]].data[micro_batch_ids[i]][token_ids[i]][expert_offsets[i]] = x[i], "
    "rounded to token_dtype; then its flag",
    "specification, sections 1 and 4",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<> check_ffn_to_attention(const FfnToAttentionRequest& r) {
    OperatorCheck check(kFfnToAttentionSpec);
    check.attribute("token_dtype", r.token_dtype);
    check.tensor("schedule_context", context_tensor(r.context));
    check.tensor("x", r.x);
    check.tensor("session_ids", r.session_ids);
    check.tensor("micro_batch_ids", r.micro_batch_ids);
    check.tensor("token_ids", r.token_ids);
    check.tensor("expert_offsets", r.expert_offsets);
    check.tensor("actual_token_num", r.actual_token_num);
    check.tensor("routing_weights", r.routing_weights);
    if (r.context != nullptr) {
        check.bind("A", r.context->common.session_num);
        check.bind("M", r.context->common.micro_batch_num);
    }
    check.tensor("rounds", r.rounds);
    AFD_TRY(check.finish());
    const size_t num_rows = num_rows_of(r);
    check.require(num_rows <= r.x.shape[0],
                  "actual_token_num is " + std::to_string(static_cast<int64_t>(num_rows)) +
                      "; allowed are 0 to " + std::to_string(r.x.shape[0]));
    check_windows(check, r);
    AFD_TRY(check.finish());
    check_rows(check, r);
    return check.finish();
}

size_t ffn_to_attention_workspace_bytes(size_t num_rows) {
    return workspace_bytes_of<uint64_t>(num_rows);
}

Result<> ffn_to_attention(const FfnToAttentionRequest& r,
                          std::span<std::byte> workspace,
                          Parallel& parallel) {
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
