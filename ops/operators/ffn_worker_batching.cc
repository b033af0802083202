// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/ffn_worker_batching.h"

#include <algorithm>
#include <cstring>

#include "ops/experts/expert_sort.h"
#include "ops/operators/context_check.h"
#include "ops/operators/context_copy.h"
#include "ops/operators/ffn_worker_batching_shape.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/geometry.h"
#include "schedule/wait/flag.h"

namespace afd::ops {
namespace {

using Shape = FfnWorkerBatchingShape;

// The descriptors of one call, private to it.
struct Descriptors {
    size_t count = 0;
    int32_t* sessions = nullptr;       // [A]
    int32_t* micro_batches = nullptr;  // [A]
    int32_t* layers = nullptr;         // [A]
    int32_t* ids = nullptr;            // [A][BS·K1]
};

struct Scratch {
    Descriptors descriptors;
    int32_t* keys;   // [A·BS·K1]
    int32_t* order;  // [A·BS·K1]
    int32_t* next;   // [expert_num]
    uint8_t* seen;   // [A·M]
};

size_t to_size(int64_t value) {
    return value < 0 ? 0 : static_cast<size_t>(value);
}

Scratch take_scratch(const Shape& s, std::span<std::byte> workspace) {
    WorkspaceCursor cursor(workspace);
    Scratch scratch{};
    scratch.descriptors.sessions = cursor.take<int32_t>(s.num_sessions);
    scratch.descriptors.micro_batches = cursor.take<int32_t>(s.num_sessions);
    scratch.descriptors.layers = cursor.take<int32_t>(s.num_sessions);
    scratch.descriptors.ids = cursor.take<int32_t>(s.num_rows_max());
    scratch.keys = cursor.take<int32_t>(s.num_rows_max());
    scratch.order = cursor.take<int32_t>(s.num_rows_max());
    scratch.next = cursor.take<int32_t>(s.num_experts);
    scratch.seen = cursor.take<uint8_t>(s.num_sessions * s.num_micro_batches);
    return scratch;
}

// need_schedule 0: what the scheduler left in its output buffers.
Result<> take_scheduled(const FfnWorkerBatchingRequest& request, const Shape& s, Scratch& scratch) {
    const auto& ffn = request.context->ffn;
    Descriptors& d = scratch.descriptors;
    d.count = ffn.out_num;
    const std::byte* control = request.control.data();
    std::memcpy(d.sessions, control + ffn.session_ids_buf, d.count * 4);
    std::memcpy(d.micro_batches, control + ffn.micro_batch_ids_buf, d.count * 4);
    std::memcpy(d.ids, control + ffn.expert_ids_buf, d.count * s.slots_per_row() * 4);
    if (s.num_layers > 0) std::memcpy(d.layers, control + ffn.layer_ids_buf, d.count * 4);

    return check_scheduled_rows(s, {d.sessions, d.count}, {d.micro_batches, d.count}, scratch.seen);
}

const int32_t* descriptor(const FfnWorkerBatchingRequest& request,
                          const Shape& s,
                          size_t session,
                          size_t micro_batch) {
    const size_t index = (session * s.num_micro_batches + micro_batch) * (2 + s.slots_per_row());
    return reinterpret_cast<const int32_t*>(request.window.data() +
                                            request.context->ffn.token_info_buf) +
           index;
}

// need_schedule 1: the first micro-batch from polling_index on that has a ready session.
void scan(const FfnWorkerBatchingRequest& request, const Shape& s, Descriptors& d) {
    const auto& context = *request.context;
    d.count = 0;
    if (context.control.run_flag == 0) return;
    const size_t first = context.ffn.polling_index % s.num_micro_batches;
    // One micro-batch only: the output buffers have a place for each session, not for each
    // descriptor.
    for (size_t step = 0; step < s.num_micro_batches && d.count == 0; ++step) {
        const size_t m = (first + step) % s.num_micro_batches;
        for (size_t session = 0; session < s.num_sessions; ++session) {
            const int32_t* source = descriptor(request, s, session, m);
            if (schedule::observe(*source, schedule::Order::kAcquire) == 0) continue;
            d.sessions[d.count] = static_cast<int32_t>(session);
            d.micro_batches[d.count] = static_cast<int32_t>(m);
            d.layers[d.count] = source[1];
            // Copied once and never read again: the ids are another process's, and are judged in
            // the copy.
            std::memcpy(d.ids + d.count * s.slots_per_row(), source + 2, s.slots_per_row() * 4);
            ++d.count;
        }
    }
}

// What was taken, into the output buffers and into `shared`, the context that others see.
void publish_scan(const FfnWorkerBatchingRequest& request,
                  const Shape& s,
                  const Descriptors& d,
                  schedule::ScheduleContext& shared) {
    const auto& ffn = request.context->ffn;
    shared.ffn.out_num = static_cast<uint32_t>(d.count);
    if (d.count > 0) {
        const auto taken = static_cast<size_t>(d.micro_batches[0]);
        // It stays where nothing was ready (the specification, section 2).
        shared.ffn.polling_index = static_cast<uint32_t>((taken + 1) % s.num_micro_batches);
    }
    std::byte* control = request.control.data();
    const auto store = [&](uint64_t offset, uint64_t size, const int32_t* values, size_t count) {
        // A buffer of size 0 is not wanted.
        if (size != 0) std::memcpy(control + offset, values, count * 4);
    };
    store(ffn.session_ids_buf, ffn.session_ids_buf_size, d.sessions, d.count);
    store(ffn.micro_batch_ids_buf, ffn.micro_batch_ids_buf_size, d.micro_batches, d.count);
    store(ffn.layer_ids_buf, ffn.layer_ids_buf_size, d.layers, d.count);
    store(ffn.expert_ids_buf, ffn.expert_ids_buf_size, d.ids, d.count * s.slots_per_row());
}

void compute_keys(const Shape& s, const Descriptors& d, int32_t* keys) {
    for (size_t row = 0; row < d.count; ++row) {
        const int32_t* ids = d.ids + row * s.slots_per_row();
        int32_t* out = keys + row * s.slots_per_row();
        const bool by_layer = s.num_layers > 0;
        const bool layer_ok =
            !by_layer || (d.layers[row] >= 0 && static_cast<size_t>(d.layers[row]) < s.num_layers);
        if (!layer_ok) {
            std::fill_n(out, s.slots_per_row(), -1);
            continue;
        }
        const auto limit = static_cast<int32_t>(s.experts_per_layer);
        // No overflow: the product is below expert_num, which is an int32.
        const int32_t base = by_layer ? d.layers[row] * limit : 0;
        for (size_t i = 0; i < s.slots_per_row(); ++i) {
            out[i] = ids[i] >= 0 && ids[i] < limit ? base + ids[i] : -1;
        }
    }
}

struct Gather {
    const FfnWorkerBatchingRequest& request;
    const Shape& shape;
    const Descriptors& descriptors;
    const int32_t* order;
    FfnWorkerBatchingOutput& output;

    void copy_row(size_t i) const {
        const auto flat = static_cast<size_t>(order[i]);
        const size_t row = flat / shape.slots_per_row();
        const size_t slot = flat % shape.slots_per_row();
        const int32_t session = descriptors.sessions[row];
        const int32_t micro_batch = descriptors.micro_batches[row];
        const size_t place = (static_cast<size_t>(session) * shape.num_micro_batches +
                              static_cast<size_t>(micro_batch)) *
                                 shape.slots_per_row() +
                             slot;
        const std::byte* source = request.window.data() + request.context->ffn.token_data_buf +
                                  place * shape.token_stride;
        std::memcpy(output.y.data() + i * shape.value_bytes, source, shape.value_bytes);
        if (shape.has_scale) {
            // By bytes: directly behind the values it has no alignment.
            std::memcpy(&output.dynamic_scale[i], source + shape.value_bytes, sizeof(float));
        }
        output.session_ids[i] = session;
        output.micro_batch_ids[i] = micro_batch;
        output.token_ids[i] = static_cast<int32_t>(slot / shape.num_slots);
        output.expert_offsets[i] = static_cast<int32_t>(slot % shape.num_slots);
    }
};

}  // namespace

size_t ffn_worker_batching_workspace_bytes(const FfnWorkerBatchingAttributes& a) {
    const size_t num_sessions = to_size(a.max_out_shape[0]);
    const size_t num_rows =
        num_sessions * to_size(a.max_out_shape[1]) * to_size(a.max_out_shape[2]);
    return 3 * workspace_bytes_of<int32_t>(num_sessions) +
           3 * workspace_bytes_of<int32_t>(num_rows) +
           workspace_bytes_of<int32_t>(to_size(a.expert_num)) +
           workspace_bytes_of<uint8_t>(num_sessions * schedule::kMicroBatchesMax);
}

Result<> ffn_worker_batching(const FfnWorkerBatchingRequest& shared,
                             FfnWorkerBatchingOutput& output,
                             std::span<std::byte> workspace,
                             Parallel& parallel) {
    ContextCopy context(shared.context);
    FfnWorkerBatchingRequest request = shared;
    request.context = context.get();
    AFD_ASSIGN(const Shape shape, check_ffn_worker_batching(request, output));

    Scratch scratch = take_scratch(shape, workspace);
    const Descriptors& descriptors = scratch.descriptors;
    if (request.attributes.need_schedule == 1) {
        scan(request, shape, scratch.descriptors);
        publish_scan(request, shape, descriptors, *shared.context);
    } else {
        AFD_TRY(take_scheduled(request, shape, scratch));
    }
    compute_keys(shape, descriptors, scratch.keys);
    auto* groups = reinterpret_cast<ExpertGroup*>(output.group_list.data());
    const ExpertSort sorted =
        sort_by_expert({scratch.keys, descriptors.count * shape.slots_per_row()},
                       shape.num_experts,
                       scratch.next,
                       scratch.order,
                       groups);
    // The pairs [0, 0] behind the groups are part of the output.
    std::fill(groups + sorted.num_groups, groups + shape.num_experts, ExpertGroup{});
    output.num_groups = static_cast<int64_t>(sorted.num_groups);
    output.actual_token_num = static_cast<int64_t>(sorted.num_rows);

    const Gather gather{request, shape, descriptors, scratch.order, output};
    const auto copy_rows = [&](size_t first, size_t last, unsigned) {
        for (size_t i = first; i < last; ++i) gather.copy_row(i);
    };
    for_rows(parallel, sorted.num_rows, shape.value_bytes / kCopiedBytesPerElement, copy_rows);
    return {};
}

}  // namespace afd::ops
