// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/moe_init_routing.h"

#include <algorithm>
#include <cstring>

#include "ops/experts/expert_sort.h"
#include "ops/linear/quantise.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {
namespace {

// A checked request with its scratch; after sort_slots() it knows where every row comes from.
struct Routing {
    const MoeInitRoutingV3Request& request;
    size_t num_slots = 0;     // N·K
    size_t first_expert = 0;  // Of the active range; experts below count from it.
    size_t num_active = 0;
    size_t capacity = 0;  // 0: dropless.
    int32_t* keys = nullptr;
    int32_t* order = nullptr;     // Slots with an active expert, sorted.
    int32_t* position = nullptr;  // The inverse, or null.
    int32_t* starts = nullptr;    // [num_active + 1]: first place of an expert in order.
    int32_t* scratch = nullptr;
    ExpertGroup* groups = nullptr;
    size_t num_sorted = 0;

    size_t count(size_t expert) const {
        return static_cast<size_t>(starts[expert + 1] - starts[expert]);
    }

    // Rows of expanded_x that are written.
    size_t num_rows() const {
        if (capacity > 0) return num_active * capacity;
        if (request.active_num <= 0) return num_sorted;
        return std::min(num_sorted, static_cast<size_t>(request.active_num));
    }

    // The slot behind a row, or -1 for a row of zeros.
    int32_t slot_of(size_t row) const {
        if (capacity == 0) return order[row];
        const size_t expert = row / capacity;
        const size_t i = row % capacity;
        return i < count(expert) ? order[static_cast<size_t>(starts[expert]) + i] : -1;
    }
};

Routing make_routing(const MoeInitRoutingV3Request& r, std::span<std::byte> workspace) {
    Routing routing{r};
    routing.num_slots = r.expert_idx.shape[0] * r.expert_idx.shape[1];
    routing.num_active = static_cast<size_t>(r.expert_num);
    if (!r.active_expert_range.empty()) {
        routing.first_expert = static_cast<size_t>(r.active_expert_range[0]);
        routing.num_active = static_cast<size_t>(r.active_expert_range[1]) - routing.first_expert;
    }
    if (r.drop_pad_mode == 1) routing.capacity = static_cast<size_t>(r.expert_capacity);
    WorkspaceCursor cursor(workspace);
    routing.keys = cursor.take<int32_t>(routing.num_slots);
    routing.order = cursor.take<int32_t>(routing.num_slots);
    routing.starts = cursor.take<int32_t>(routing.num_active + 1);
    routing.groups = cursor.take<ExpertGroup>(std::min(routing.num_slots, routing.num_active));
    routing.scratch =
        cursor.take<int32_t>(expert_sort_scratch(routing.num_slots, routing.num_active));
    // The sort writes either kind of index in place.
    auto* row_idx = static_cast<int32_t*>(r.expanded_row_idx.data);
    if (r.row_idx_type == 1) {
        routing.order = row_idx;
    } else if (routing.capacity == 0) {
        routing.position = row_idx;
    }
    return routing;
}

void sort_slots(Routing& routing, Parallel& parallel) {
    const auto* ids = static_cast<const int32_t*>(routing.request.expert_idx.data);
    const auto first = static_cast<int32_t>(routing.first_expert);
    const auto end = static_cast<int32_t>(routing.first_expert + routing.num_active);
    for (size_t f = 0; f < routing.num_slots; ++f) {
        routing.keys[f] = ids[f] >= first && ids[f] < end ? ids[f] - first : -1;
    }
    const ExpertSort sorted = sort_by_expert({routing.keys, routing.num_slots},
                                             routing.num_active,
                                             routing.scratch,
                                             routing.order,
                                             routing.position,
                                             routing.groups,
                                             parallel);
    routing.num_sorted = sorted.num_rows;
    int32_t start = 0;
    size_t group = 0;
    for (size_t expert = 0; expert < routing.num_active; ++expert) {
        routing.starts[expert] = start;
        const bool has_rows =
            group < sorted.num_groups && routing.groups[group].key == static_cast<int64_t>(expert);
        if (has_rows) start += static_cast<int32_t>(routing.groups[group++].count);
    }
    routing.starts[routing.num_active] = start;
}

void write_counts(const Routing& routing) {
    const MoeInitRoutingV3Request& r = routing.request;
    auto* out = static_cast<int64_t*>(r.expert_tokens_count_or_cumsum.data);
    if (!r.expert_tokens_num_flag || r.expert_tokens_count_or_cumsum.num_elements() == 0) return;
    if (r.expert_tokens_num_type == 2) {
        std::fill_n(out, 2 * r.expert_num, int64_t{0});
    }
    for (size_t expert = 0; expert < routing.num_active; ++expert) {
        const auto count = static_cast<int64_t>(routing.count(expert));
        if (r.expert_tokens_num_type == 0) {
            out[expert] = routing.starts[expert + 1];
        } else if (r.expert_tokens_num_type == 1) {
            out[expert] = count;
        } else if (count > 0) {
            *out++ = static_cast<int64_t>(routing.first_expert + expert);
            *out++ = count;
        }
    }
}

void write_drop_pad_index(const Routing& routing) {
    auto* row_idx = static_cast<int32_t*>(routing.request.expanded_row_idx.data);
    // Slots that were dropped or belong to no active expert have no row.
    std::fill_n(row_idx, routing.num_slots, -1);
    for (size_t expert = 0; expert < routing.num_active; ++expert) {
        const size_t num_kept = std::min(routing.count(expert), routing.capacity);
        for (size_t i = 0; i < num_kept; ++i) {
            const size_t row = expert * routing.capacity + i;
            row_idx[routing.slot_of(row)] = static_cast<int32_t>(row);
        }
    }
}

// Fills rows of expanded_x and expanded_scale.
class RowWriter {
  public:
    explicit RowWriter(const Routing& routing)
        : routing_(routing),
          r_(routing.request),
          hidden_(r_.x.shape[1]),
          top_k_(r_.expert_idx.shape[1]),
          x_row_bytes_(hidden_ * size_of(r_.x.dtype)),
          row_bytes_(hidden_ * size_of(r_.expanded_x.dtype)) {}

    size_t row_bytes() const { return row_bytes_; }

    void write(size_t row) const {
        std::byte* out = static_cast<std::byte*>(r_.expanded_x.data) + row * row_bytes_;
        const int32_t slot = routing_.slot_of(row);
        if (slot < 0) {
            std::memset(out, 0, row_bytes_);
            if (has_scale()) scale_out(row) = 0.0f;
            return;
        }
        const size_t token = static_cast<size_t>(slot) / top_k_;
        const std::byte* x = static_cast<const std::byte*>(r_.x.data) + token * x_row_bytes_;
        if (r_.quant_mode == -1) {
            std::memcpy(out, x, row_bytes_);
            if (has_scale()) scale_out(row) = scale_in()[token];
            return;
        }
        auto* q = reinterpret_cast<int8_t*>(out);
        if (r_.quant_mode == 0) {
            const float offset = *static_cast<const float*>(r_.offset.data);
            quantise_row_static(r_.x.dtype, x, *scale_in(), offset, hidden_, q);
            return;
        }
        // Counted from the active range, as the smooth scales are: [R, H].
        const auto key = static_cast<size_t>(routing_.keys[slot]);
        scale_out(row) = quantise_row(r_.x.dtype, x, smooth_of(key), hidden_, q);
    }

  private:
    bool has_scale() const {
        return r_.quant_mode == 1 || (r_.quant_mode == -1 && r_.scale.num_elements() > 0);
    }
    const float* scale_in() const { return static_cast<const float*>(r_.scale.data); }
    float& scale_out(size_t row) const { return static_cast<float*>(r_.expanded_scale.data)[row]; }
    const float* smooth_of(size_t key) const {
        if (r_.scale.num_elements() == 0) return nullptr;
        return scale_in() + (r_.scale.shape[0] == 1 ? 0 : key * hidden_);
    }

    const Routing& routing_;
    const MoeInitRoutingV3Request& r_;
    size_t hidden_;
    size_t top_k_;
    size_t x_row_bytes_;
    size_t row_bytes_;
};

void write_rows(const Routing& routing, Parallel& parallel) {
    const RowWriter writer(routing);
    const auto write = [&](size_t first, size_t last, unsigned) {
        for (size_t row = first; row < last; ++row) writer.write(row);
    };
    for_rows(parallel, routing.num_rows(), writer.row_bytes() / kCopiedBytesPerElement, write);
}

}  // namespace

size_t moe_init_routing_v3_workspace_bytes(size_t num_tokens, size_t top_k, size_t expert_num) {
    const size_t num_slots = num_tokens * top_k;
    return 2 * workspace_bytes_of<int32_t>(num_slots) +
           workspace_bytes_of<int32_t>(expert_num + 1) +
           workspace_bytes_of<ExpertGroup>(std::min(num_slots, expert_num)) +
           workspace_bytes_of<int32_t>(expert_sort_scratch(num_slots, expert_num));
}

void moe_init_routing_v3_checked(const MoeInitRoutingV3Request& request,
                                 std::span<std::byte> workspace,
                                 Parallel& parallel) {
    Routing routing = make_routing(request, workspace);
    sort_slots(routing, parallel);
    write_counts(routing);
    if (routing.capacity > 0) write_drop_pad_index(routing);
    write_rows(routing, parallel);
}

Result<> moe_init_routing_v3(const MoeInitRoutingV3Request& request,
                             std::span<std::byte> workspace,
                             Parallel& parallel) {
    AFD_TRY(check_moe_init_routing_v3(request));
    moe_init_routing_v3_checked(request, workspace, parallel);
    return {};
}

}  // namespace afd::ops
