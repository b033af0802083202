// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/ffn_worker_batching.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/operators/ffn_worker_batching_shape.h"
#include "schedule/context/schedule_context.h"

namespace afd::ops::reference {
namespace {

using Shape = FfnWorkerBatchingShape;

struct Descriptor {
    int32_t session = 0;
    int32_t micro_batch = 0;
    int32_t layer = 0;
    std::vector<int32_t> ids;  // [BS·K1]
};

int32_t word(std::span<const std::byte> bytes, uint64_t offset) {
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
}

// Rows that a scheduler left in the output buffers.
std::vector<Descriptor> listed(const FfnWorkerBatchingRequest& r, const Shape& s) {
    const auto& ffn = r.context->ffn;
    std::vector<Descriptor> rows(ffn.out_num);
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].session = word(r.control, ffn.session_ids_buf + 4 * i);
        rows[i].micro_batch = word(r.control, ffn.micro_batch_ids_buf + 4 * i);
        if (s.num_layers > 0) rows[i].layer = word(r.control, ffn.layer_ids_buf + 4 * i);
        for (size_t slot = 0; slot < s.slots_per_row(); ++slot) {
            rows[i].ids.push_back(
                word(r.control, ffn.expert_ids_buf + 4 * (i * s.slots_per_row() + slot)));
        }
    }
    return rows;
}

// The first micro-batch from polling_index on with a non-zero flag, and all its ready sessions.
std::vector<Descriptor> scanned(const FfnWorkerBatchingRequest& r, const Shape& s) {
    auto& ffn = r.context->ffn;
    std::vector<Descriptor> rows;
    for (size_t d = 0; d < s.num_micro_batches && r.context->control.run_flag != 0; ++d) {
        const size_t m = (ffn.polling_index + d) % s.num_micro_batches;
        for (size_t session = 0; session < s.num_sessions; ++session) {
            const uint64_t at = ffn.token_info_buf +
                                4 * (session * s.num_micro_batches + m) * (2 + s.slots_per_row());
            if (word(r.window, at) == 0) continue;
            Descriptor& row = rows.emplace_back();
            row.session = static_cast<int32_t>(session);
            row.micro_batch = static_cast<int32_t>(m);
            row.layer = word(r.window, at + 4);
            for (size_t slot = 0; slot < s.slots_per_row(); ++slot) {
                row.ids.push_back(word(r.window, at + 8 + 4 * slot));
            }
        }
        if (rows.empty()) continue;
        ffn.polling_index = (m + 1) % s.num_micro_batches;
        break;
    }
    return rows;
}

void store_scan(const FfnWorkerBatchingRequest& r, const std::vector<Descriptor>& rows) {
    auto& ffn = r.context->ffn;
    ffn.out_num = static_cast<uint32_t>(rows.size());
    const auto store = [&](uint64_t offset, uint64_t size, const int32_t* values, size_t count) {
        if (size != 0) std::memcpy(r.control.data() + offset, values, 4 * count);
    };
    // List by list, since a context may let them overlap: then the last one stands.
    for (size_t i = 0; i < rows.size(); ++i) {
        store(ffn.session_ids_buf + 4 * i, ffn.session_ids_buf_size, &rows[i].session, 1);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
        store(
            ffn.micro_batch_ids_buf + 4 * i, ffn.micro_batch_ids_buf_size, &rows[i].micro_batch, 1);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
        store(ffn.layer_ids_buf + 4 * i, ffn.layer_ids_buf_size, &rows[i].layer, 1);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
        const std::vector<int32_t>& ids = rows[i].ids;
        store(ffn.expert_ids_buf + 4 * i * ids.size(),
              ffn.expert_ids_buf_size,
              ids.data(),
              ids.size());
    }
}

// The expert key of a slot, or -1 if it is masked.
int64_t key_of(const Shape& s, const Descriptor& row, size_t slot) {
    const int64_t id = row.ids[slot];
    if (id < 0 || id >= static_cast<int64_t>(s.experts_per_layer)) return -1;
    if (s.num_layers == 0) return id;
    if (row.layer < 0 || row.layer >= static_cast<int64_t>(s.num_layers)) return -1;
    return row.layer * static_cast<int64_t>(s.experts_per_layer) + id;
}

void copy_row(const FfnWorkerBatchingRequest& r,
              const Shape& s,
              const Descriptor& row,
              size_t slot,
              size_t i,
              FfnWorkerBatchingOutput& output) {
    const auto lane = static_cast<size_t>(row.session) * s.num_micro_batches +
                      static_cast<size_t>(row.micro_batch);
    const std::byte* source = r.window.data() + r.context->ffn.token_data_buf +
                              (lane * s.slots_per_row() + slot) * s.token_stride;
    std::memcpy(&output.y[i * s.value_bytes], source, s.value_bytes);
    if (s.has_scale) std::memcpy(&output.dynamic_scale[i], source + s.value_bytes, sizeof(float));
    output.session_ids[i] = row.session;
    output.micro_batch_ids[i] = row.micro_batch;
    output.token_ids[i] = static_cast<int32_t>(slot / s.num_slots);
    output.expert_offsets[i] = static_cast<int32_t>(slot % s.num_slots);
}

}  // namespace

Result<> ffn_worker_batching(const FfnWorkerBatchingRequest& r, FfnWorkerBatchingOutput& output) {
    AFD_ASSIGN(const Shape s, check_ffn_worker_batching(r, output));
    std::vector<Descriptor> rows;
    if (r.attributes.need_schedule == 1) {
        rows = scanned(r, s);
        store_scan(r, rows);
    } else {
        rows = listed(r, s);
        std::vector<int32_t> sessions;
        std::vector<int32_t> micro_batches;
        for (const Descriptor& row : rows) {
            sessions.push_back(row.session);
            micro_batches.push_back(row.micro_batch);
        }
        std::vector<uint8_t> seen(s.num_sessions * s.num_micro_batches);
        AFD_TRY(check_scheduled_rows(s, sessions, micro_batches, seen.data()));
    }
    std::fill_n(output.group_list.begin(), 2 * s.num_experts, 0);
    output.num_groups = 0;
    output.actual_token_num = 0;
    // By the definition of the order, once through all slots for each key; no sort to be wrong in
    // the same way as the operator's.
    for (int64_t key = 0; key < static_cast<int64_t>(s.num_experts); ++key) {
        const int64_t first = output.actual_token_num;
        for (const Descriptor& row : rows) {
            for (size_t slot = 0; slot < s.slots_per_row(); ++slot) {
                if (key_of(s, row, slot) != key) continue;
                copy_row(r, s, row, slot, static_cast<size_t>(output.actual_token_num++), output);
            }
        }
        if (output.actual_token_num == first) continue;
        const auto group = static_cast<size_t>(output.num_groups++);
        output.group_list[2 * group] = key;
        output.group_list[2 * group + 1] = output.actual_token_num - first;
    }
    return {};
}

}  // namespace afd::ops::reference
