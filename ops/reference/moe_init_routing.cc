// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/moe_init_routing.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/reference/quantise.h"

namespace afd::ops::reference {
namespace {

struct Slot {
    int64_t expert;
    size_t f;  // n·K + k
};

// Slots of active experts, by expert, then by f.
std::vector<Slot> sorted_slots(const MoeInitRoutingV3Request& r, int64_t start, int64_t end) {
    std::vector<Slot> slots;
    const auto* ids = static_cast<const int32_t*>(r.expert_idx.data);
    for (size_t f = 0; f < r.expert_idx.num_elements(); ++f) {
        if (ids[f] >= start && ids[f] < end) slots.push_back({ids[f], f});
    }
    std::stable_sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
        return a.expert < b.expert;
    });
    return slots;
}

void write_row(const MoeInitRoutingV3Request& r, const Slot& slot, int64_t start, size_t row) {
    const size_t hidden = r.x.shape[1];
    const size_t token = slot.f / r.expert_idx.shape[1];
    const auto* x = static_cast<const std::byte*>(r.x.data) + token * hidden * size_of(r.x.dtype);
    auto* out =
        static_cast<std::byte*>(r.expanded_x.data) + row * hidden * size_of(r.expanded_x.dtype);
    const auto* scale = static_cast<const float*>(r.scale.data);
    const bool has_scale = r.scale.num_elements() > 0;
    auto* row_scale = static_cast<float*>(r.expanded_scale.data);
    if (r.quant_mode == -1) {
        std::memcpy(out, x, hidden * size_of(r.x.dtype));
        if (has_scale) row_scale[row] = scale[token];
    } else if (r.quant_mode == 0) {
        const float offset = static_cast<const float*>(r.offset.data)[0];
        quantise_row_static(r.x.dtype, x, scale[0], offset, hidden, reinterpret_cast<int8_t*>(out));
    } else {
        const float* smooth = nullptr;
        if (has_scale) {
            smooth = r.scale.shape[0] == 1
                         ? scale
                         : scale + static_cast<size_t>(slot.expert - start) * hidden;
        }
        row_scale[row] = quantise_row(r.x.dtype, x, smooth, hidden, reinterpret_cast<int8_t*>(out));
    }
}

void write_dropless(const MoeInitRoutingV3Request& r,
                    const std::vector<Slot>& slots,
                    int64_t start) {
    auto* row_idx = static_cast<int32_t*>(r.expanded_row_idx.data);
    if (r.row_idx_type == 0) std::fill_n(row_idx, r.expert_idx.num_elements(), -1);
    for (size_t p = 0; p < slots.size(); ++p) {
        if (r.row_idx_type == 0) {
            row_idx[slots[p].f] = static_cast<int32_t>(p);
        } else {
            row_idx[p] = static_cast<int32_t>(slots[p].f);
        }
        // The index names rows beyond active_num as well: it says where a row would be.
        if (r.active_num > 0 && p >= static_cast<size_t>(r.active_num)) continue;
        write_row(r, slots[p], start, p);
    }
}

void write_drop_pad(const MoeInitRoutingV3Request& r, const std::vector<Slot>& slots) {
    auto* row_idx = static_cast<int32_t*>(r.expanded_row_idx.data);
    std::fill_n(row_idx, r.expert_idx.num_elements(), -1);
    std::memset(r.expanded_x.data, 0, r.expanded_x.num_elements() * size_of(r.expanded_x.dtype));
    std::fill_n(static_cast<float*>(r.expanded_scale.data), r.expanded_scale.num_elements(), 0.0f);
    std::vector<int64_t> num_kept(static_cast<size_t>(r.expert_num), 0);
    for (const Slot& slot : slots) {
        int64_t& kept = num_kept[static_cast<size_t>(slot.expert)];
        if (kept == r.expert_capacity) continue;
        const int64_t row = slot.expert * r.expert_capacity + kept++;
        row_idx[slot.f] = static_cast<int32_t>(row);
        write_row(r, slot, 0, static_cast<size_t>(row));
    }
}

void write_counts(const MoeInitRoutingV3Request& r,
                  const std::vector<Slot>& slots,
                  int64_t start,
                  int64_t end) {
    if (!r.expert_tokens_num_flag || r.expert_tokens_count_or_cumsum.num_elements() == 0) return;
    auto* out = static_cast<int64_t*>(r.expert_tokens_count_or_cumsum.data);
    std::fill_n(out, r.expert_tokens_count_or_cumsum.num_elements(), 0);
    int64_t sum = 0;
    for (int64_t expert = start; expert < end; ++expert) {
        int64_t count = 0;
        while (sum + count < static_cast<int64_t>(slots.size()) &&
               slots[static_cast<size_t>(sum + count)].expert == expert) {
            ++count;
        }
        sum += count;
        if (r.expert_tokens_num_type == 0) *out++ = sum;
        if (r.expert_tokens_num_type == 1) *out++ = count;
        if (r.expert_tokens_num_type == 2 && count > 0) {
            *out++ = expert;
            *out++ = count;
        }
    }
}

}  // namespace

Result<> moe_init_routing_v3(const MoeInitRoutingV3Request& r) {
    AFD_TRY(check_moe_init_routing_v3(r));
    const bool is_all = r.active_expert_range.empty();
    const int64_t start = is_all ? 0 : r.active_expert_range[0];
    const int64_t end = is_all ? r.expert_num : r.active_expert_range[1];
    const std::vector<Slot> slots = sorted_slots(r, start, end);
    if (r.drop_pad_mode == 1) {
        write_drop_pad(r, slots);
    } else {
        write_dropless(r, slots, start);
    }
    write_counts(r, slots, start, end);
    return {};
}

}  // namespace afd::ops::reference
