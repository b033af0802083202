// SPDX-License-Identifier: Apache-2.0

// The record of FFNToAttention and the check of a request against it.

#include <string>

#include "ops/operators/context_check.h"
#include "ops/operators/ffn_to_attention.h"

namespace afd::ops {
namespace {

using Request = FfnToAttentionRequest;

constexpr int64_t kOffOrOn[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"token_dtype", bind<&Request::token_dtype>(), "0", kOffOrOn, 0, 0, "rows become fp16; bf16"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     bind<&Request::context>(),
     TensorRole::kInput,
     {DType::kInt8},
     "[1024]",
     "dimensions, and the places of the buffers in every attention window"},
    {"attention_windows",
     bind<&Request::attention_windows>(),
     TensorRole::kInPlace,
     {DType::kUint8},
     "[A, ?]",
     "windows of sessions"},
    {"x",
     bind<&Request::x>(),
     TensorRole::kInput,
     {DType::kBf16, DType::kFp16, DType::kFp32},
     "[Y, H]",
     "result rows"},
    {"session_ids",
     bind<&Request::session_ids>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[Y]",
     "session of each row"},
    {"micro_batch_ids",
     bind<&Request::micro_batch_ids>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[Y]",
     "micro-batch of each row"},
    {"token_ids",
     bind<&Request::token_ids>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[Y]",
     "index in the micro-batch"},
    {"expert_offsets",
     bind<&Request::expert_offsets>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[Y]",
     "slot k"},
    {"actual_token_num",
     bind<&Request::actual_token_num>(),
     TensorRole::kOptionalInput,
     {DType::kInt64},
     "[1]",
     "rows that are there; not given: Y"},
    {"routing_weights",
     bind<&Request::routing_weights>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[Y]",
     "follow the values of their rows"},
    {"rounds",
     bind<&Request::rounds>(),
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

void check_windows(OperatorCheck& check, const FfnToAttentionRequest& r) {
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    check_dimensions(check, common);
    check.require(r.attention_windows.size() == common.session_num,
                  "attention_windows are {}; there must be session_num, {}",
                  with(r.attention_windows.size(), common.session_num));
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
                                 "{}[{}] is {}; it must be 0 or more and below {}, {}",
                                 with(list.name, row, id, list.limit_name, list.limit));
        }
    }
    for (size_t i = 0; i < r.rounds.num_elements(); ++i) {
        // 0 is the flag of a slot that nobody has written.
        if (id_of(r.rounds, i) != 0) continue;
        return check.require(false,
                             "rounds[{}] is 0, the flag of a slot that nobody has written; allowed "
                             "are all other values",
                             with(i));
    }
}

}  // namespace

const RecordOf<FfnToAttentionRequest> kFfnToAttentionSpec = {
    {"ffn_to_attention",
     "result rows, written back into the windows of the sessions that they belong to",
     "window[session_ids[i]].data[micro_batch_ids[i]][token_ids[i]][expert_offsets[i]] = x[i], "
     "rounded to token_dtype; then its flag",
     "docs/specification.md, sections 1 and 4",
     kAttributes,
     kTensors,
     kRules,
     {}}};

Result<> check_ffn_to_attention(const FfnToAttentionRequest& r) {
    OperatorCheck check(kFfnToAttentionSpec, r);
    check.attributes();
    if (r.context != nullptr) {
        check.bind("A", r.context->common.session_num);
        check.bind("M", r.context->common.micro_batch_num);
    }
    check.tensors();
    AFD_TRY(check.finish());
    const size_t num_rows = num_rows_of(r);
    check.require(num_rows <= r.x.shape[0],
                  "actual_token_num is {}; allowed are 0 to {}",
                  with(static_cast<int64_t>(num_rows), r.x.shape[0]));
    check_windows(check, r);
    AFD_TRY(check.finish());
    check_rows(check, r);
    return check.finish();
}

size_t num_rows_of(const FfnToAttentionRequest& r) {
    if (r.actual_token_num.num_elements() == 0) return r.x.shape[0];
    // A negative number becomes a huge one, which the check refuses before anything is read by it.
    return static_cast<size_t>(*static_cast<const int64_t*>(r.actual_token_num.data));
}

}  // namespace afd::ops
