// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/ffn_worker_batching.h"
#include "ops/record/operator_spec.h"

namespace afd::ops {
namespace {

constexpr int64_t kTokenDtypes[] = {0, 1, 2};
constexpr int64_t kScheduleModes[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"expert_num",
     AttributeKind::kInt,
     "",
     {},
     1,
     INT32_MAX,
     "experts of this worker: those of a layer times layer_num"},
    {"max_out_shape", AttributeKind::kInts, "", {}, 0, 0, "{A, BS, K1, H}"},
    {"token_dtype",
     AttributeKind::kInt,
     "0",
     kTokenDtypes,
     0,
     0,
     "fp16; bf16; int8 with an fp32 scale behind the row"},
    {"need_schedule",
     AttributeKind::kInt,
     "0",
     kScheduleModes,
     0,
     0,
     "takes what a scheduler left in the buffers; scans the flags first"},
    {"layer_num",
     AttributeKind::kInt,
     "0",
     {},
     0,
     INT32_MAX,
     "0: ids are unique over layers; else ids count within a layer"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the FFN worker's ScheduleContext; buffers are byte offsets"},
    {"ffn_window",
     TensorRole::kInput,
     {DType::kUint8},
     "[?]",
     "descriptors and token rows: token_info_buf and token_data_buf point into it"},
    {"ffn_control",
     TensorRole::kInPlace,
     {DType::kUint8},
     "[?]",
     "the scheduler's output buffers: layer, session and micro-batch ids, expert ids"},
    {"y",
     TensorRole::kOutput,
     {DType::kFp16, DType::kBf16, DType::kInt8},
     "[A*BS*K1, H]",
     "rows sorted by expert key, verbatim"},
    {"group_list",
     TensorRole::kOutput,
     {DType::kInt64},
     "[expert_num, 2]",
     "[key, count] of keys with rows, ascending, then [0, 0]"},
    {"session_ids", TensorRole::kOutput, {DType::kInt32}, "[A*BS*K1]", "of each row"},
    {"micro_batch_ids", TensorRole::kOutput, {DType::kInt32}, "[A*BS*K1]", "of each row"},
    {"token_ids", TensorRole::kOutput, {DType::kInt32}, "[A*BS*K1]", "index in the micro-batch"},
    {"expert_offsets", TensorRole::kOutput, {DType::kInt32}, "[A*BS*K1]", "slot k"},
    {"dynamic_scale",
     TensorRole::kOptionalOutput,
     {DType::kFp32},
     "[A*BS*K1]",
     "the row's scale, with token_dtype 2"},
    {"actual_token_num", TensorRole::kOutput, {DType::kInt64}, "[1]", "rows that are valid"},
};

constexpr std::string_view kRules[] = {
    "max_out_shape's A, BS and K1 are the context's session_num, micro_batch_size and "
    "selected_expert_num; a row of H elements fits attn_to_ffn_token_size.",
    "A is at most 1024, M at most 64, K at most 64; expert_num is a multiple of layer_num.",
    "out_num is at most A; sessions and micro-batches are in range; none is listed twice.",
    "An id outside the worker's experts masks its slot; a layer out of range masks its descriptor.",
};

constexpr std::string_view kLifted[] = {"platforms: one accelerator series only"};

}  // namespace

const OperatorSpec kFfnWorkerBatchingSpec = {
    "ffn_worker_batching",
    "rows of the FFN window, gathered and sorted by expert",
    "y[i] = row of the i-th slot in the stable order by (expert key, flat index)",
    "seed ffn_worker_batching; specification, section 2",
    kAttributes,
    kTensors,
    kRules,
    kLifted};

}  // namespace afd::ops
