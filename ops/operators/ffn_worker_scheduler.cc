// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/ffn_worker_scheduler.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "ops/operators/context_check.h"
#include "ops/record/operator_check.h"
#include "schedule/schedule_context.h"

namespace afd::ops {
namespace {

using schedule::ScheduleContext;

constexpr std::string_view kPolicies[] = {"any", "groups", "all"};

constexpr AttributeSpec kAttributes[] = {
    {.name = "policy",
     .kind = AttributeKind::kString,
     .default_value = "\"any\"",
     .choices = {},
     .least = 0,
     .most = 0,
     .meaning = "each session's first ready micro-batch; that of complete groups of sessions; the "
                "ready sessions of micro-batch polling_index",
     .words = kPolicies},
    {"sync_group_size",
     AttributeKind::kInt,
     "1",
     {},
     1,
     schedule::kSessionsMax,
     "sessions of a group; used with policy groups"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the FFN worker's ScheduleContext; out_num and polling_index are written"},
    {"ffn_window", TensorRole::kInput, {DType::kUint8}, "[?]", "token_info_buf points into it"},
    {"ffn_control",
     TensorRole::kInPlace,
     {DType::kUint8},
     "[?]",
     "layer_ids_buf, session_ids_buf, micro_batch_ids_buf and expert_ids_buf point into it"},
};

constexpr std::string_view kRules[] = {
    "A is 1 to 1024, M 1 to 64, K1 1 to 68; polling_index is below M.",
    "token_info_buf lies inside ffn_window; an output buffer lies inside ffn_control or has size "
    "0 and is skipped.",
};

struct Shape {
    size_t num_sessions;
    size_t num_micro_batches;
    size_t slots;  // BS·K1
};

Shape shape_of(const ScheduleContext& context) {
    const auto& common = context.common;
    return {common.session_num,
            common.micro_batch_num,
            size_t{common.micro_batch_size} * common.selected_expert_num};
}

Result<> judge(const FfnWorkerSchedulerRequest& r) {
    OperatorCheck check(kFfnWorkerSchedulerSpec);
    check.attribute("policy", r.policy);
    check.attribute("sync_group_size", r.sync_group_size);
    check.tensor("schedule_context", context_tensor(r.context));
    check.tensor("ffn_window", bytes_tensor(r.window.data(), r.window.size()));
    check.tensor("ffn_control", bytes_tensor(r.control.data(), r.control.size()));
    AFD_TRY(check.finish());
    const auto& ffn = r.context->ffn;
    check_dimensions(check, r.context->common);
    AFD_TRY(check.finish());
    const Shape s = shape_of(*r.context);
    check.require(ffn.polling_index < s.num_micro_batches,
                  "polling_index is " + std::to_string(ffn.polling_index) +
                      "; it must be below micro_batch_num, " + std::to_string(s.num_micro_batches));
    check_buffer(check,
                 {"token_info_buf", ffn.token_info_buf, ffn.token_info_buf_size, 4},
                 {s.num_sessions, s.num_micro_batches, 2 + s.slots, sizeof(int32_t)},
                 r.window.size(),
                 "ffn_window");
    const auto list = [&](const char* name, uint64_t offset, uint64_t size, uint64_t row) {
        if (size == 0) return;
        check_buffer(check,
                     {name, offset, size, 4},
                     {s.num_sessions, row, sizeof(int32_t)},
                     r.control.size(),
                     "ffn_control");
    };
    list("layer_ids_buf", ffn.layer_ids_buf, ffn.layer_ids_buf_size, 1);
    list("session_ids_buf", ffn.session_ids_buf, ffn.session_ids_buf_size, 1);
    list("micro_batch_ids_buf", ffn.micro_batch_ids_buf, ffn.micro_batch_ids_buf_size, 1);
    list("expert_ids_buf", ffn.expert_ids_buf, ffn.expert_ids_buf_size, s.slots);
    return check.finish();
}

const int32_t* descriptor(const FfnWorkerSchedulerRequest& r,
                          const Shape& s,
                          size_t session,
                          size_t micro_batch) {
    const auto* info =
        reinterpret_cast<const int32_t*>(r.window.data() + r.context->ffn.token_info_buf);
    return info + (session * s.num_micro_batches + micro_batch) * (2 + s.slots);
}

bool is_ready(const int32_t* flag) {
    // Acquire: partner is the attention worker's store of the flag after rows, ids and layer.
    return std::atomic_ref<int32_t>(*const_cast<int32_t*>(flag)).load(std::memory_order_acquire) !=
           0;
}

// The micro-batch that `session` gives: the first ready one of `reach` from polling_index on.
std::optional<size_t> first_ready(const FfnWorkerSchedulerRequest& r,
                                  const Shape& s,
                                  size_t session,
                                  size_t reach) {
    for (size_t d = 0; d < reach; ++d) {
        const size_t m = (r.context->ffn.polling_index + d) % s.num_micro_batches;
        if (is_ready(descriptor(r, s, session, m))) return m;
    }
    return std::nullopt;
}

void append(const FfnWorkerSchedulerRequest& r, const Shape& s, size_t session, size_t m) {
    auto& ffn = r.context->ffn;
    const size_t row = ffn.out_num++;
    const int32_t* source = descriptor(r, s, session, m);
    const auto store = [&](uint64_t offset, uint64_t size, const int32_t* values, size_t count) {
        if (size == 0) return;
        std::memcpy(r.control.data() + offset + row * count * 4, values, count * 4);
    };
    const auto session_id = static_cast<int32_t>(session);
    const auto micro_batch_id = static_cast<int32_t>(m);
    store(ffn.layer_ids_buf, ffn.layer_ids_buf_size, source + 1, 1);
    store(ffn.session_ids_buf, ffn.session_ids_buf_size, &session_id, 1);
    store(ffn.micro_batch_ids_buf, ffn.micro_batch_ids_buf_size, &micro_batch_id, 1);
    store(ffn.expert_ids_buf, ffn.expert_ids_buf_size, source + 2, s.slots);
}

}  // namespace

constinit const OperatorSpec kFfnWorkerSchedulerSpec = {
    "ffn_worker_scheduler",
    "which ready descriptors an FFN worker executes next",
    "out = descriptors with a non-zero flag that the policy takes, sessions ascending",
    "specification, section 3",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<> ffn_worker_scheduler(const FfnWorkerSchedulerRequest& r) {
    AFD_TRY(judge(r));
    const Shape s = shape_of(*r.context);
    auto& ffn = r.context->ffn;
    ffn.out_num = 0;
    if (r.context->control.run_flag == 0) return {};
    const bool takes_turns = r.policy == "all";
    const size_t reach = takes_turns ? 1 : s.num_micro_batches;
    const size_t group = r.policy == "groups" ? static_cast<size_t>(r.sync_group_size) : 1;
    for (size_t begin = 0; begin < s.num_sessions; begin += group) {
        const size_t end = std::min(s.num_sessions, begin + group);
        size_t num_ready = 0;
        for (size_t session = begin; session < end; ++session) {
            num_ready += first_ready(r, s, session, reach).has_value() ? 1 : 0;
        }
        if (num_ready < end - begin) continue;
        for (size_t session = begin; session < end; ++session) {
            // Flags only rise while this runs: what was ready still is.
            append(r, s, session, *first_ready(r, s, session, reach));
        }
    }
    if (takes_turns) ffn.polling_index = (ffn.polling_index + 1) % s.num_micro_batches;
    return {};
}

}  // namespace afd::ops
