// SPDX-License-Identifier: Apache-2.0

#include "ops/ffn_worker_batching.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "ops/expert_sort.h"
#include "ops/workspace.h"
#include "schedule/geometry.h"
#include "schedule/schedule_context.h"

namespace afd::ops {
namespace {

using schedule::ScheduleContext;

// Bytes that one task copies, at least: some microseconds of work.
constexpr size_t kBytesPerTask = size_t{128} << 10;

Error refuse(const std::string& name, uint64_t value, const std::string& allowed) {
    return Error{Code::kInvalidArgument, name + " is " + std::to_string(value) + "; " + allowed};
}

Error refuse_signed(const std::string& name, int64_t value, const std::string& allowed) {
    return Error{Code::kInvalidArgument, name + " is " + std::to_string(value) + "; " + allowed};
}

std::string element(const char* name, size_t index) {
    return std::string(name).append("[").append(std::to_string(index)).append("]");
}

// The dimensions of a checked request.
struct Shape {
    size_t num_sessions;       // A
    size_t num_micro_batches;  // M
    size_t micro_batch_size;   // BS
    size_t num_slots;          // K1
    size_t hidden;             // H
    size_t token_stride;       // HS
    size_t value_bytes;        // H elements of the token dtype.
    bool has_scale;
    size_t num_experts;
    size_t experts_per_layer;
    size_t num_layers;  // 0: ids are unique over layers.

    size_t slots_per_row() const { return micro_batch_size * num_slots; }
    size_t num_rows_max() const { return num_sessions * slots_per_row(); }
};

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

// offset + Π factors <= size, without overflow.
bool fits(uint64_t offset, std::initializer_list<uint64_t> factors, uint64_t size) {
    uint64_t product = 1;
    for (const uint64_t factor : factors) {
        if (__builtin_mul_overflow(product, factor, &product)) return false;
    }
    uint64_t end = 0;
    return !__builtin_add_overflow(offset, product, &end) && end <= size;
}

Result<void> check_attributes(const FfnWorkerBatchingAttributes& a) {
    if (a.expert_num <= 0) return refuse_signed("expert_num", a.expert_num, "it must be positive");
    if (a.expert_num > INT32_MAX) {
        return refuse_signed("expert_num", a.expert_num, "at most 2147483647 are allowed");
    }
    if (a.layer_num < 0) return refuse_signed("layer_num", a.layer_num, "it must not be negative");
    if (a.layer_num > 0 && a.expert_num % a.layer_num != 0) {
        return refuse_signed(
            "expert_num",
            a.expert_num,
            "it must be a multiple of layer_num, which is " + std::to_string(a.layer_num));
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

Result<void> check_dimensions(const FfnWorkerBatchingAttributes& a,
                              const ScheduleContext::CommonArea& common) {
    const auto limit = [](const char* name, uint32_t value, uint32_t most) -> Result<void> {
        if (value >= 1 && value <= most) return {};
        return refuse(name, value, "allowed are 1 ... " + std::to_string(most));
    };
    AFD_TRY(limit("session_num", common.session_num, schedule::kSessionsMax));
    AFD_TRY(limit("micro_batch_num", common.micro_batch_num, schedule::kMicroBatchesMax));
    AFD_TRY(
        limit("selected_expert_num", common.selected_expert_num, schedule::kSelectedExpertsMax));
    AFD_TRY(limit("micro_batch_size", common.micro_batch_size, INT32_MAX));
    const uint32_t wanted[3] = {
        common.session_num, common.micro_batch_size, common.selected_expert_num};
    const char* names[3] = {"session_num", "micro_batch_size", "selected_expert_num"};
    for (size_t i = 0; i < 3; ++i) {
        if (a.max_out_shape[i] == static_cast<int64_t>(wanted[i])) continue;
        return refuse_signed(element("max_out_shape", i),
                             a.max_out_shape[i],
                             "it must equal the context's " + std::string(names[i]) + ", " +
                                 std::to_string(wanted[i]));
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
    const size_t element_bytes = shape.has_scale ? 1 : 2;
    const size_t scale_bytes = shape.has_scale ? sizeof(float) : 0;
    if (!fits(scale_bytes, {shape.hidden, element_bytes}, shape.token_stride)) {
        return refuse("attn_to_ffn_token_size",
                      shape.token_stride,
                      "a row of H " + std::to_string(shape.hidden) + " does not fit");
    }
    shape.value_bytes = shape.hidden * element_bytes;
    shape.num_experts = static_cast<size_t>(a.expert_num);
    shape.num_layers = static_cast<size_t>(a.layer_num);
    shape.experts_per_layer =
        shape.num_layers == 0 ? shape.num_experts : shape.num_experts / shape.num_layers;
    return shape;
}

// One *_buf of the context: its announced size and its place inside `segment_bytes`.
Result<void> check_buffer(const char* name,
                          uint64_t offset,
                          uint64_t size,
                          std::initializer_list<uint64_t> factors,
                          size_t segment_bytes) {
    if (!fits(0, factors, size)) {
        return refuse(std::string(name) + "_size", size, "the dimensions need more");
    }
    if (!fits(offset, {size}, segment_bytes)) {
        return refuse(name,
                      offset,
                      "with its " + std::to_string(size) + " bytes it ends beyond the segment of " +
                          std::to_string(segment_bytes));
    }
    if (offset % alignof(int32_t) != 0) {
        return refuse(name, offset, "it must be a multiple of 4");
    }
    return {};
}

Result<void> check_buffers(const FfnWorkerBatchingRequest& request, const Shape& s) {
    const auto& ffn = request.context->ffn;
    const bool scans = request.attributes.need_schedule == 1;
    const size_t control = request.control.size();
    const auto list = [&](const char* name, uint64_t offset, uint64_t size, uint64_t row) {
        // A scan leaves out a buffer of size 0.
        if (scans && size == 0) return Result<void>();
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

Result<void> check_output(const FfnWorkerBatchingOutput& output, const Shape& s) {
    const size_t num_rows = s.num_rows_max();
    const auto at_least = [](const char* name, size_t have, size_t want) -> Result<void> {
        if (have >= want) return {};
        return refuse(std::string(name) + " size",
                      have,
                      "at least " + std::to_string(want) + " elements are needed");
    };
    AFD_TRY(at_least("y", output.y.size(), num_rows * s.value_bytes));
    AFD_TRY(at_least("group_list", output.group_list.size(), 2 * s.num_experts));
    AFD_TRY(at_least("session_ids", output.session_ids.size(), num_rows));
    AFD_TRY(at_least("micro_batch_ids", output.micro_batch_ids.size(), num_rows));
    AFD_TRY(at_least("token_ids", output.token_ids.size(), num_rows));
    AFD_TRY(at_least("expert_offsets", output.expert_offsets.size(), num_rows));
    return at_least("dynamic_scale", output.dynamic_scale.size(), s.has_scale ? num_rows : 0);
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
Result<void> take_scheduled(const FfnWorkerBatchingRequest& request,
                            const Shape& s,
                            Scratch& scratch) {
    const auto& ffn = request.context->ffn;
    Descriptors& d = scratch.descriptors;
    d.count = ffn.out_num;
    if (d.count > s.num_sessions) {
        return refuse("out_num", d.count, "at most session_num, " + std::to_string(s.num_sessions));
    }
    const std::byte* control = request.control.data();
    std::memcpy(d.sessions, control + ffn.session_ids_buf, d.count * 4);
    std::memcpy(d.micro_batches, control + ffn.micro_batch_ids_buf, d.count * 4);
    std::memcpy(d.ids, control + ffn.expert_ids_buf, d.count * s.slots_per_row() * 4);
    if (s.num_layers > 0) std::memcpy(d.layers, control + ffn.layer_ids_buf, d.count * 4);

    std::fill_n(scratch.seen, s.num_sessions * s.num_micro_batches, uint8_t{0});
    for (size_t row = 0; row < d.count; ++row) {
        if (d.sessions[row] < 0 || static_cast<size_t>(d.sessions[row]) >= s.num_sessions) {
            return refuse_signed(element("session_ids", row),
                                 d.sessions[row],
                                 "allowed are 0 ... " + std::to_string(s.num_sessions - 1));
        }
        if (d.micro_batches[row] < 0 ||
            static_cast<size_t>(d.micro_batches[row]) >= s.num_micro_batches) {
            return refuse_signed(element("micro_batch_ids", row),
                                 d.micro_batches[row],
                                 "allowed are 0 ... " + std::to_string(s.num_micro_batches - 1));
        }
        uint8_t& seen = scratch.seen[static_cast<size_t>(d.sessions[row]) * s.num_micro_batches +
                                     static_cast<size_t>(d.micro_batches[row])];
        if (seen != 0) {
            return refuse_signed(element("session_ids", row),
                                 d.sessions[row],
                                 "its micro-batch " + std::to_string(d.micro_batches[row]) +
                                     " is in the list twice");
        }
        seen = 1;
    }
    return {};
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

bool is_ready(const int32_t* flag) {
    // Acquire: partner is the attention worker's store of the flag after rows, ids and layer.
    return std::atomic_ref<int32_t>(*const_cast<int32_t*>(flag)).load(std::memory_order_acquire) !=
           0;
}

// need_schedule 1: the first micro-batch from polling_index on that has a ready session.
void scan(const FfnWorkerBatchingRequest& request, const Shape& s, Descriptors& d) {
    auto& context = *request.context;
    d.count = 0;
    if (context.control.run_flag == 0) return;
    const size_t first = context.ffn.polling_index % s.num_micro_batches;
    for (size_t step = 0; step < s.num_micro_batches && d.count == 0; ++step) {
        const size_t m = (first + step) % s.num_micro_batches;
        for (size_t session = 0; session < s.num_sessions; ++session) {
            const int32_t* source = descriptor(request, s, session, m);
            if (!is_ready(source)) continue;
            d.sessions[d.count] = static_cast<int32_t>(session);
            d.micro_batches[d.count] = static_cast<int32_t>(m);
            d.layers[d.count] = source[1];
            std::memcpy(d.ids + d.count * s.slots_per_row(), source + 2, s.slots_per_row() * 4);
            ++d.count;
        }
        if (d.count > 0) context.ffn.polling_index = (m + 1) % s.num_micro_batches;
    }
}

void publish_scan(const FfnWorkerBatchingRequest& request, const Shape& s, const Descriptors& d) {
    auto& ffn = request.context->ffn;
    ffn.out_num = static_cast<uint32_t>(d.count);
    std::byte* control = request.control.data();
    const auto store = [&](uint64_t offset, uint64_t size, const int32_t* values, size_t count) {
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

Result<void> ffn_worker_batching(const FfnWorkerBatchingRequest& request,
                                 FfnWorkerBatchingOutput& output,
                                 std::span<std::byte> workspace,
                                 Parallel& parallel) {
    AFD_TRY(check_attributes(request.attributes));
    AFD_TRY(check_dimensions(request.attributes, request.context->common));
    Shape shape{};
    AFD_ASSIGN(shape, make_shape(request.attributes, *request.context));
    AFD_TRY(check_buffers(request, shape));
    AFD_TRY(check_output(output, shape));

    Scratch scratch = take_scratch(shape, workspace);
    const Descriptors& descriptors = scratch.descriptors;
    if (request.attributes.need_schedule == 1) {
        scan(request, shape, scratch.descriptors);
        publish_scan(request, shape, descriptors);
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
    std::fill(groups + sorted.num_groups, groups + shape.num_experts, ExpertGroup{});
    output.num_groups = static_cast<int64_t>(sorted.num_groups);
    output.actual_token_num = static_cast<int64_t>(sorted.num_rows);

    const Gather gather{request, shape, descriptors, scratch.order, output};
    const size_t rows_per_task = kBytesPerTask / shape.value_bytes + 1;
    const size_t num_tasks = (sorted.num_rows + rows_per_task - 1) / rows_per_task;
    const auto copy_rows = [&](size_t task, unsigned) {
        const size_t last = std::min(sorted.num_rows, (task + 1) * rows_per_task);
        for (size_t i = task * rows_per_task; i < last; ++i) gather.copy_row(i);
    };
    if (num_tasks == 1) {
        copy_rows(0, 0);
    } else if (num_tasks > 1) {
        parallel.run(num_tasks, copy_rows);
    }
    return {};
}

}  // namespace afd::ops
