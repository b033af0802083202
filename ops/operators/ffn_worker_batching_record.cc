// SPDX-License-Identifier: Apache-2.0

// The record of FfnWorkerBatching and the check of a request against it. The check is written out,
// not made by OperatorCheck, which builds its messages in advance: the FFN loop runs this operator
// in every pass, and a pass allocates nothing.

#include <algorithm>
#include <optional>
#include <string>

#include "ops/operators/ffn_worker_batching.h"
#include "ops/operators/ffn_worker_batching_shape.h"
#include "ops/record/operator_spec.h"
#include "proto/failure.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/geometry.h"

namespace afd::ops {
namespace {

using Request = FfnWorkerBatchingRequest;

using schedule::ScheduleContext;
using Shape = FfnWorkerBatchingShape;

constexpr int64_t kTokenDtypes[] = {0, 1, 2};
constexpr int64_t kScheduleModes[] = {0, 1};

// A member of the request's attributes.
template <auto kMember>
constexpr RequestMember attribute() {
    return {MemberType::kInt, [](void* request) -> void* {
                return &(static_cast<Request*>(request)->attributes.*kMember);
            }};
}

constexpr AttributeSpec kAttributes[] = {
    {"expert_num",
     attribute<&FfnWorkerBatchingAttributes::expert_num>(),
     "",
     {},
     1,
     INT32_MAX,
     "experts of this worker: those of a layer times layer_num"},
    {"max_out_shape", unbound(MemberType::kInts), "", {}, 0, 0, "{A, BS, K1, H}"},
    {"token_dtype",
     unbound(MemberType::kInt),
     "0",
     kTokenDtypes,
     0,
     0,
     "fp16; bf16; int8 with an fp32 scale behind the row"},
    {"need_schedule",
     attribute<&FfnWorkerBatchingAttributes::need_schedule>(),
     "0",
     kScheduleModes,
     0,
     0,
     "takes what a scheduler left in the buffers; scans the flags first"},
    {"layer_num",
     attribute<&FfnWorkerBatchingAttributes::layer_num>(),
     "0",
     {},
     0,
     INT32_MAX,
     "0: ids are unique over layers; else ids count within a layer"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     bind<&Request::context>(),
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the FFN worker's ScheduleContext; buffers are byte offsets"},
    {"ffn_window",
     bind<&Request::window>(),
     TensorRole::kInput,
     {DType::kUint8},
     "[?]",
     "descriptors and token rows: token_info_buf and token_data_buf point into it"},
    {"ffn_control",
     bind<&Request::control>(),
     TensorRole::kInPlace,
     {DType::kUint8},
     "[?]",
     "the scheduler's output buffers: layer, session and micro-batch ids, expert ids"},
    {"y",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kFp16, DType::kBf16, DType::kInt8},
     "[A*BS*K1, H]",
     "rows sorted by expert key, verbatim"},
    {"group_list",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kInt64},
     "[expert_num, 2]",
     "[key, count] of keys with rows, ascending, then [0, 0]"},
    {"session_ids",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kInt32},
     "[A*BS*K1]",
     "of each row"},
    {"micro_batch_ids",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kInt32},
     "[A*BS*K1]",
     "of each row"},
    {"token_ids",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kInt32},
     "[A*BS*K1]",
     "index in the micro-batch"},
    {"expert_offsets",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kInt32},
     "[A*BS*K1]",
     "slot k"},
    {"dynamic_scale",
     unbound(MemberType::kTensor),
     TensorRole::kOptionalOutput,
     {DType::kFp32},
     "[A*BS*K1]",
     "the row's scale, with token_dtype 2"},
    {"actual_token_num",
     unbound(MemberType::kTensor),
     TensorRole::kOutput,
     {DType::kInt64},
     "[1]",
     "rows that are valid"},
};

constexpr std::string_view kRules[] = {
    "max_out_shape's A, BS and K1 are the context's session_num, micro_batch_size and "
    "selected_expert_num; attn_to_ffn_token_size is a positive multiple of 512 that holds a row "
    "of H elements.",
    "A is at most 1024, M at most 64, K1 at most 68; expert_num is a multiple of layer_num; "
    "schedule_mode is 0, 1 or 2, and polling_index below M with need_schedule 1.",
    "out_num is at most A; sessions and micro-batches are in range; none is listed twice.",
    "An id outside the worker's experts masks its slot; a layer out of range masks its descriptor.",
};

static_assert(schedule::kSessionsMax == 1024 && schedule::kMicroBatchesMax == 64 &&
                  schedule::kSelectedExpertsMax == 68,
              "a rule has the numbers");

constexpr std::string_view kLifted[] = {"platforms: one accelerator series only"};

Error refuse(const std::string& name, uint64_t value, const std::string& allowed) {
    return invalid_argument("ffn_worker_batching: {} is {}; {}", with(name, value, allowed));
}

Error refuse_signed(const std::string& name, int64_t value, const std::string& allowed) {
    return invalid_argument("ffn_worker_batching: {} is {}; {}", with(name, value, allowed));
}

std::string element(const char* name, size_t index) {
    return fmt::format("{}[{}]", name, index);
}

// Nothing if 64 bits do not hold it.
std::optional<uint64_t> product_of(std::initializer_list<uint64_t> factors) {
    uint64_t product = 1;
    for (const uint64_t factor : factors) {
        if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
    }
    return product;
}

// offset + Π factors <= size, without overflow.
bool fits(uint64_t offset, std::initializer_list<uint64_t> factors, uint64_t size) {
    const std::optional<uint64_t> product = product_of(factors);
    uint64_t end = 0;
    return product && !__builtin_add_overflow(offset, *product, &end) && end <= size;
}

Result<> check_attributes(const FfnWorkerBatchingAttributes& a) {
    if (a.expert_num <= 0) return refuse_signed("expert_num", a.expert_num, "it must be positive");
    if (a.expert_num > INT32_MAX) {
        return refuse_signed("expert_num", a.expert_num, "at most 2147483647 are allowed");
    }
    if (a.layer_num < 0) return refuse_signed("layer_num", a.layer_num, "it must not be negative");
    if (a.layer_num > 0 && a.expert_num % a.layer_num != 0) {
        return refuse_signed(
            "expert_num",
            a.expert_num,
            fmt::format("it must be a multiple of layer_num, which is {}", a.layer_num));
    }
    if (a.need_schedule != 0 && a.need_schedule != 1) {
        return refuse_signed("need_schedule", a.need_schedule, "allowed are 0 and 1");
    }
    const auto dtype = static_cast<int64_t>(a.token_dtype);
    if (dtype < 0 || dtype > 2) {
        return refuse_signed("token_dtype", dtype, "allowed are 0 (fp16), 1 (bf16), 2 (int8)");
    }
    if (a.max_out_shape[3] <= 0) {
        return refuse_signed("max_out_shape[3] (H)", a.max_out_shape[3], "it must be positive");
    }
    return {};
}

Result<> check_dimensions(const FfnWorkerBatchingAttributes& a,
                          const ScheduleContext::CommonArea& common) {
    const auto limit = [](const char* name, uint32_t value, uint32_t most) -> Result<> {
        if (value >= 1 && value <= most) return {};
        return refuse(name, value, fmt::format("allowed are 1 ... {}", most));
    };
    AFD_TRY(limit("session_num", common.session_num, schedule::kSessionsMax));
    AFD_TRY(limit("micro_batch_num", common.micro_batch_num, schedule::kMicroBatchesMax));
    AFD_TRY(
        limit("selected_expert_num", common.selected_expert_num, schedule::kSelectedExpertsMax));
    AFD_TRY(limit("micro_batch_size", common.micro_batch_size, INT32_MAX));
    if (common.schedule_mode < 0 || common.schedule_mode > 2) {
        return refuse_signed("schedule_mode", common.schedule_mode, "allowed are 0, 1, 2");
    }
    const uint32_t wanted[3] = {
        common.session_num, common.micro_batch_size, common.selected_expert_num};
    const char* names[3] = {"session_num", "micro_batch_size", "selected_expert_num"};
    for (size_t i = 0; i < 3; ++i) {
        if (a.max_out_shape[i] == static_cast<int64_t>(wanted[i])) continue;
        return refuse_signed(
            element("max_out_shape", i),
            a.max_out_shape[i],
            fmt::format("it must equal the context's {}, {}", names[i], wanted[i]));
    }
    if (!fits(0, {wanted[0], wanted[1], wanted[2]}, INT32_MAX)) {
        return refuse("A * BS * K1 with micro_batch_size",
                      common.micro_batch_size,
                      "the product must not exceed 2147483647");
    }
    return {};
}

Result<Shape> make_shape(const FfnWorkerBatchingAttributes& a, const ScheduleContext& context) {
    const auto& common = context.common;
    Shape shape{};
    shape.num_sessions = common.session_num;
    shape.num_micro_batches = common.micro_batch_num;
    shape.micro_batch_size = common.micro_batch_size;
    shape.num_slots = common.selected_expert_num;
    shape.hidden = static_cast<size_t>(a.max_out_shape[3]);
    shape.token_stride = common.attn_to_ffn_token_size;
    shape.has_scale = a.token_dtype == TokenDtype::kInt8;
    if (shape.token_stride == 0 || shape.token_stride % schedule::kTokenAlignBytes != 0) {
        return refuse(
            "attn_to_ffn_token_size",
            shape.token_stride,
            fmt::format("it must be a positive multiple of {}", schedule::kTokenAlignBytes));
    }
    const size_t element_bytes = shape.has_scale ? 1 : 2;
    const size_t scale_bytes = shape.has_scale ? sizeof(float) : 0;
    if (!fits(scale_bytes, {shape.hidden, element_bytes}, shape.token_stride)) {
        return refuse("attn_to_ffn_token_size",
                      shape.token_stride,
                      fmt::format("a row of H {} does not fit", shape.hidden));
    }
    shape.value_bytes = shape.hidden * element_bytes;
    shape.num_experts = static_cast<size_t>(a.expert_num);
    shape.num_layers = static_cast<size_t>(a.layer_num);
    shape.experts_per_layer =
        shape.num_layers == 0 ? shape.num_experts : shape.num_experts / shape.num_layers;
    return shape;
}

// One *_buf of the context: its announced size and its place inside `segment_bytes`.
Result<> check_buffer(const char* name,
                      uint64_t offset,
                      uint64_t size,
                      std::initializer_list<uint64_t> factors,
                      size_t segment_bytes) {
    if (!fits(0, factors, size)) {
        const std::optional<uint64_t> needed = product_of(factors);
        return refuse(std::string(name) + "_size",
                      size,
                      needed ? fmt::format("the dimensions need {}", *needed)
                             : "the dimensions need more than 64 bits can say");
    }
    if (!fits(offset, {size}, segment_bytes)) {
        return refuse(
            name,
            offset,
            fmt::format("with its {} bytes it ends beyond the segment of {}", size, segment_bytes));
    }
    if (offset % alignof(int32_t) != 0) {
        return refuse(name, offset, "it must be a multiple of 4");
    }
    return {};
}

Result<> check_buffers(const FfnWorkerBatchingRequest& request, const Shape& s) {
    const auto& ffn = request.context->ffn;
    const bool scans = request.attributes.need_schedule == 1;
    const size_t control = request.control.size();
    const auto list = [&](const char* name, uint64_t offset, uint64_t size, uint64_t row) {
        // A scan leaves out a buffer of size 0.
        if (scans && size == 0) return Result<>();
        return check_buffer(name, offset, size, {s.num_sessions, row, 4}, control);
    };
    AFD_TRY(list("session_ids_buf", ffn.session_ids_buf, ffn.session_ids_buf_size, 1));
    AFD_TRY(list("micro_batch_ids_buf", ffn.micro_batch_ids_buf, ffn.micro_batch_ids_buf_size, 1));
    AFD_TRY(list("expert_ids_buf", ffn.expert_ids_buf, ffn.expert_ids_buf_size, s.slots_per_row()));
    if (scans || s.num_layers > 0) {
        AFD_TRY(list("layer_ids_buf", ffn.layer_ids_buf, ffn.layer_ids_buf_size, 1));
    }
    if (scans) {
        AFD_TRY(check_buffer("token_info_buf",
                             ffn.token_info_buf,
                             ffn.token_info_buf_size,
                             {s.num_sessions, s.num_micro_batches, 2 + s.slots_per_row(), 4},
                             request.window.size()));
    }
    return check_buffer("token_data_buf",
                        ffn.token_data_buf,
                        ffn.token_data_buf_size,
                        {s.num_sessions, s.num_micro_batches, s.slots_per_row(), s.token_stride},
                        request.window.size());
}

Result<> check_output(const FfnWorkerBatchingOutput& output, const Shape& s) {
    const size_t num_rows = s.num_rows_max();
    const auto at_least = [](const char* name, size_t have, size_t want) -> Result<> {
        if (have >= want) return {};
        return refuse(std::string(name) + " size",
                      have,
                      fmt::format("at least {} elements are needed", want));
    };
    AFD_TRY(at_least("y", output.y.size(), num_rows * s.value_bytes));
    AFD_TRY(at_least("group_list", output.group_list.size(), 2 * s.num_experts));
    AFD_TRY(at_least("session_ids", output.session_ids.size(), num_rows));
    AFD_TRY(at_least("micro_batch_ids", output.micro_batch_ids.size(), num_rows));
    AFD_TRY(at_least("token_ids", output.token_ids.size(), num_rows));
    AFD_TRY(at_least("expert_offsets", output.expert_offsets.size(), num_rows));
    return at_least("dynamic_scale", output.dynamic_scale.size(), s.has_scale ? num_rows : 0);
}

}  // namespace

const RecordOf<FfnWorkerBatchingRequest> kFfnWorkerBatchingSpec = {
    {"ffn_worker_batching",
     "rows of the FFN window, gathered and sorted by expert",
     "y[i] = row of the i-th slot in the stable order by (expert key, flat index)",
     "seed ffn_worker_batching; docs/specification.md, section 2",
     kAttributes,
     kTensors,
     kRules,
     kLifted}};

Result<Shape> check_ffn_worker_batching(const FfnWorkerBatchingRequest& request,
                                        const FfnWorkerBatchingOutput& output) {
    if (request.context == nullptr) {
        return invalid_argument(
            "ffn_worker_batching: schedule_context is missing; it must be [1024]");
    }
    AFD_TRY(check_attributes(request.attributes));
    AFD_TRY(check_dimensions(request.attributes, request.context->common));
    AFD_ASSIGN(const Shape shape, make_shape(request.attributes, *request.context));
    AFD_TRY(check_buffers(request, shape));
    const uint64_t polling_index = request.context->ffn.polling_index;
    if (request.attributes.need_schedule == 1 && polling_index >= shape.num_micro_batches) {
        return refuse("polling_index",
                      polling_index,
                      fmt::format("it must be below micro_batch_num, {}", shape.num_micro_batches));
    }
    AFD_TRY(check_output(output, shape));
    if (request.attributes.need_schedule == 0 &&
        request.context->ffn.out_num > shape.num_sessions) {
        return refuse("out_num",
                      request.context->ffn.out_num,
                      fmt::format("at most session_num, {}", shape.num_sessions));
    }
    return shape;
}

Result<> check_scheduled_rows(const Shape& s,
                              std::span<const int32_t> sessions,
                              std::span<const int32_t> micro_batches,
                              uint8_t* seen) {
    std::fill_n(seen, s.num_sessions * s.num_micro_batches, uint8_t{0});
    for (size_t row = 0; row < sessions.size(); ++row) {
        if (sessions[row] < 0 || static_cast<size_t>(sessions[row]) >= s.num_sessions) {
            return refuse_signed(element("session_ids", row),
                                 sessions[row],
                                 fmt::format("allowed are 0 ... {}", s.num_sessions - 1));
        }
        if (micro_batches[row] < 0 ||
            static_cast<size_t>(micro_batches[row]) >= s.num_micro_batches) {
            return refuse_signed(element("micro_batch_ids", row),
                                 micro_batches[row],
                                 fmt::format("allowed are 0 ... {}", s.num_micro_batches - 1));
        }
        uint8_t& is_seen = seen[static_cast<size_t>(sessions[row]) * s.num_micro_batches +
                                static_cast<size_t>(micro_batches[row])];
        if (is_seen != 0) {
            return refuse_signed(
                element("session_ids", row),
                sessions[row],
                fmt::format("its micro-batch {} is in the list twice", micro_batches[row]));
        }
        is_seen = 1;
    }
    return {};
}

}  // namespace afd::ops
