// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/ffn_worker_scheduler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "ops/operators/context_check.h"
#include "ops/operators/context_copy.h"
#include "schedule/context/schedule_context.h"
#include "schedule/wait/flag.h"

namespace afd::ops {
namespace {

using schedule::ScheduleContext;

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

const int32_t* descriptor(const FfnWorkerSchedulerRequest& r,
                          const Shape& s,
                          size_t session,
                          size_t micro_batch) {
    const auto* info =
        reinterpret_cast<const int32_t*>(r.window.data() + r.context->ffn.token_info_buf);
    return info + (session * s.num_micro_batches + micro_batch) * (2 + s.slots);
}

// The micro-batch that `session` gives: the first ready one of `reach` from polling_index on.
std::optional<size_t> first_ready(const FfnWorkerSchedulerRequest& r,
                                  const Shape& s,
                                  size_t session,
                                  size_t reach) {
    for (size_t d = 0; d < reach; ++d) {
        const size_t m = (r.context->ffn.polling_index + d) % s.num_micro_batches;
        const int32_t& flag = *descriptor(r, s, session, m);
        if (schedule::observe(flag, schedule::Order::kAcquire) != 0) return m;
    }
    return std::nullopt;
}

// Writes entry `row` of the output buffers.
void store_entry(
    const FfnWorkerSchedulerRequest& r, const Shape& s, size_t row, size_t session, size_t m) {
    const auto& ffn = r.context->ffn;
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

Result<> ffn_worker_scheduler(const FfnWorkerSchedulerRequest& request) {
    ContextCopy context(request.context);
    FfnWorkerSchedulerRequest r = request;
    r.context = context.get();
    AFD_TRY(check_ffn_worker_scheduler(r));
    const Shape s = shape_of(*r.context);
    auto& ffn = request.context->ffn;
    ffn.out_num = 0;
    if (r.context->control.run_flag == 0) return {};
    const bool takes_turns = r.policy == "all";
    const size_t reach = takes_turns ? 1 : s.num_micro_batches;
    const size_t group = r.policy == "groups" ? static_cast<size_t>(r.sync_group_size) : 1;
    uint32_t num_taken = 0;
    for (size_t begin = 0; begin < s.num_sessions; begin += group) {
        const size_t end = std::min(s.num_sessions, begin + group);
        // Each flag is looked at once: its writer may not keep to the rule that flags only rise.
        std::array<std::optional<size_t>, schedule::kSessionsMax> found;
        size_t num_ready = 0;
        for (size_t session = begin; session < end; ++session) {
            found[session - begin] = first_ready(r, s, session, reach);
            num_ready += found[session - begin].has_value() ? 1 : 0;
        }
        // All or none of a group. The other policies have groups of one session.
        if (num_ready < end - begin) continue;
        for (size_t session = begin; session < end; ++session) {
            store_entry(r, s, num_taken++, session, *found[session - begin]);
        }
    }
    ffn.out_num = num_taken;
    if (takes_turns) {
        ffn.polling_index =
            static_cast<uint32_t>((r.context->ffn.polling_index + 1) % s.num_micro_batches);
    }
    return {};
}

}  // namespace afd::ops
