// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/two_phase.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "ops/reference/quantise.h"

namespace afd::ops::reference {
namespace {

// (rank, local expert); comparable in the order of the send buffer.
using Place = std::pair<int32_t, int32_t>;

size_t slots_per_token(const TwoPhaseRouting& r) {
    return r.expert_ids.shape[1] + static_cast<size_t>(r.shared_expert_num);
}

// The logical expert of a slot, or -1.
int64_t expert_of(const TwoPhaseRouting& r, size_t slot) {
    const size_t top_k = r.expert_ids.shape[1];
    const size_t token = slot / slots_per_token(r);
    const size_t k = slot % slots_per_token(r);
    const auto num_experts = static_cast<int64_t>(r.expert_rank_table.shape[1]);
    if (k >= top_k) return num_experts - r.shared_expert_num + static_cast<int64_t>(k - top_k);
    const int32_t id = static_cast<const int32_t*>(r.expert_ids.data)[token * top_k + k];
    return id >= 0 && id < num_experts ? id : -1;
}

// Where the sender's replica of an expert is.
Place place_of(const TwoPhaseRouting& r, int64_t expert) {
    const size_t num_experts = r.expert_rank_table.shape[1];
    const size_t width = 2 * r.expert_rank_table.shape[2];
    const auto* table =
        static_cast<const int32_t*>(r.expert_rank_table.data) +
        (static_cast<size_t>(r.layer_id) * num_experts + static_cast<size_t>(expert)) * width;
    std::vector<Place> replicas;
    for (size_t i = 0; i < width && table[i] >= 0; i += 2) {
        replicas.emplace_back(table[i], table[i + 1]);
    }
    const size_t chosen = r.choose_replica != nullptr
                              ? r.choose_replica(r.session_id, replicas.size())
                              : static_cast<size_t>(r.session_id) % replicas.size();
    return replicas[chosen];
}

// Memory for the checks of one request.
struct CheckMemory {
    std::vector<uint8_t> held;
    std::vector<int32_t> key_of_expert;
    std::vector<int64_t> next;

    explicit CheckMemory(const TwoPhaseRouting& r)
        : held(two_phase_num_keys(r)), key_of_expert(two_phase_num_experts(r)), next(held.size()) {}
    TwoPhaseScratch scratch() { return {held, key_of_expert, next}; }
};

// Slots of the blocks that a call works on, with their rows; advances done.
struct Row {
    size_t slot;
    Place place;
    size_t row;
};

std::vector<Row> rows_of_blocks(const TwoPhaseBlocks& b) {
    std::map<Place, int64_t> done;
    auto* given = static_cast<int64_t*>(b.done.data);
    const auto index = [&](const Place& place) {
        return static_cast<size_t>(place.first * b.num_local_experts + place.second);
    };
    const auto* sorted = static_cast<const int32_t*>(b.sorted_indices.data);
    const auto* base = static_cast<const int64_t*>(b.base.data);
    std::vector<Row> rows;
    const size_t num_slots = b.expert_ids.shape[0] * slots_per_token(b);
    const size_t block_slots = static_cast<size_t>(b.block_size) * slots_per_token(b);
    for (size_t first = 0, block = 0; first < num_slots; first += block_slots, ++block) {
        const auto wanted = static_cast<int64_t>(block) - b.first_block;
        if (wanted < 0 || (b.num_blocks >= 0 && wanted >= b.num_blocks)) continue;
        const size_t last = std::min(num_slots, first + block_slots);
        for (size_t i = first; i < last && sorted[i] >= 0; ++i) {
            const auto slot = static_cast<size_t>(sorted[i]);
            const Place place = place_of(b, expert_of(b, slot));
            int64_t& count = done[place];
            const int64_t before = b.done.num_elements() > 0 ? given[index(place)] : 0;
            rows.push_back({slot, place, static_cast<size_t>(base[index(place)] + before + count)});
            ++count;
        }
    }
    if (b.done.num_elements() > 0) {
        for (const auto& [place, count] : done) given[index(place)] += count;
    }
    return rows;
}

}  // namespace

Result<> two_phase_layout(const TwoPhaseLayoutRequest& r) {
    CheckMemory memory(r);
    AFD_TRY(check_two_phase_layout(r, memory.held));
    const size_t num_slots = r.expert_ids.shape[0] * slots_per_token(r);
    const auto* mask = static_cast<const bool*>(r.active_mask.data);
    auto* sorted = static_cast<int32_t*>(r.sorted_indices.data);
    std::fill_n(sorted, num_slots, -1);
    std::map<Place, int32_t> counts;
    const size_t block_slots = static_cast<size_t>(r.block_size) * slots_per_token(r);
    for (size_t first = 0; first < num_slots; first += block_slots) {
        std::vector<std::pair<Place, size_t>> block;
        for (size_t slot = first; slot < std::min(num_slots, first + block_slots); ++slot) {
            const bool is_active =
                r.active_mask.num_elements() == 0 || mask[slot / slots_per_token(r)];
            const int64_t expert = expert_of(r, slot);
            if (!is_active || expert < 0) continue;
            block.emplace_back(place_of(r, expert), slot);
            ++counts[block.back().first];
        }
        std::sort(block.begin(), block.end());
        for (size_t i = 0; i < block.size(); ++i) {
            sorted[first + i] = static_cast<int32_t>(block[i].second);
        }
    }
    int64_t offset = 0;
    for (int32_t rank = 0; rank < r.num_ranks; ++rank) {
        for (int32_t local = 0; local < r.num_local_experts; ++local) {
            const auto index = static_cast<size_t>(rank * r.num_local_experts + local);
            const auto found = counts.find({rank, local});
            const int32_t count = found == counts.end() ? 0 : found->second;
            static_cast<int32_t*>(r.send_counts.data)[index] = count;
            if (r.send_offsets.num_elements() > 0) {
                static_cast<int64_t*>(r.send_offsets.data)[index] = offset;
            }
            offset += count;
        }
    }
    return {};
}

Result<> two_phase_offsets(const TwoPhaseOffsetsRequest& r) {
    AFD_TRY(check_two_phase_offsets(r));
    const size_t num_senders = r.send_counts.shape[0];
    const size_t num_ranks = r.send_counts.shape[1];
    const size_t num_experts = r.send_counts.shape[2];
    const auto index = [&](size_t sender, size_t rank, size_t expert) {
        return (sender * num_ranks + rank) * num_experts + expert;
    };
    const auto count = [&](size_t sender, size_t rank, size_t expert) {
        return int64_t{
            static_cast<const int32_t*>(r.send_counts.data)[index(sender, rank, expert)]};
    };
    // A table without senders may name any number of experts.
    const bool has_rows = num_senders > 0 || r.group_list.num_elements() > 0;
    int64_t first_of_rank = 0;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
        // Before a row are those of experts before its own, and for that one of senders before its.
        int64_t rows = first_of_rank;
        for (size_t e = 0; has_rows && e < num_experts; ++e) {
            const int64_t before_expert = rows;
            for (size_t s = 0; s < num_senders; ++s) {
                static_cast<int64_t*>(r.base.data)[index(s, rank, e)] = rows;
                rows += count(s, rank, e);
            }
            if (r.group_list.num_elements() > 0) {
                static_cast<int64_t*>(r.group_list.data)[rank * num_experts + e] =
                    rows - before_expert;
            }
        }
        const int64_t total = rows - first_of_rank;
        static_cast<int64_t*>(r.recv_total.data)[rank] = total;
        for (size_t s = 0; s < num_senders && r.recv_counts.num_elements() > 0; ++s) {
            int64_t sent = 0;
            for (size_t e = 0; e < num_experts; ++e) sent += count(s, rank, e);
            static_cast<int64_t*>(r.recv_counts.data)[rank * num_senders + s] = sent;
        }
        if (r.one_buffer) first_of_rank += total;
    }
    return {};
}

Result<> two_phase_payload(const TwoPhasePayloadRequest& r) {
    CheckMemory memory(r);
    AFD_TRY(check_two_phase_payload(r, memory.scratch()));
    const size_t hidden = r.x.shape[1];
    for (const Row& row : rows_of_blocks(r)) {
        TwoPhaseReceiveBuffer to{r.recv_x, r.recv_scale};
        if (!r.receivers.empty()) to = r.receivers[static_cast<size_t>(row.place.first)];
        const size_t token = row.slot / slots_per_token(r);
        const auto* x =
            static_cast<const std::byte*>(r.x.data) + token * hidden * size_of(r.x.dtype);
        auto* out =
            static_cast<std::byte*>(to.recv_x.data) + row.row * hidden * size_of(to.recv_x.dtype);
        if (r.quant_mode == -1) {
            std::memcpy(out, x, hidden * size_of(r.x.dtype));
            continue;
        }
        const float* smooth = nullptr;
        if (r.scales.num_elements() > 0) {
            const auto expert = static_cast<size_t>(expert_of(r, row.slot));
            const size_t of_layer = static_cast<size_t>(r.layer_id) * r.scales.shape[1] + expert;
            smooth = static_cast<const float*>(r.scales.data) + of_layer * hidden;
        }
        const float scale =
            quantise_row(r.x.dtype, x, smooth, hidden, reinterpret_cast<int8_t*>(out));
        if (to.recv_scale.num_elements() > 0) {
            static_cast<float*>(to.recv_scale.data)[row.row] = scale;
        }
    }
    return {};
}

Result<> two_phase_combine(const TwoPhaseCombineRequest& r) {
    CheckMemory memory(r);
    AFD_TRY(check_two_phase_combine(r, memory.scratch()));
    const size_t hidden = r.y.shape[1];
    const size_t top_k = r.expert_ids.shape[1];
    std::map<size_t, Row> row_of_slot;
    for (const Row& row : rows_of_blocks(r)) row_of_slot.emplace(row.slot, row);
    const size_t num_tokens = r.expert_ids.shape[0];
    const auto tokens_before = [&](int64_t block) {
        return std::min(num_tokens, static_cast<size_t>(block * r.block_size));
    };
    const size_t end = r.num_blocks < 0 ? num_tokens : tokens_before(r.first_block + r.num_blocks);
    for (size_t token = tokens_before(r.first_block); token < end; ++token) {
        for (size_t h = 0; h < hidden; ++h) {
            float sum = 0.0f;
            for (size_t k = 0; k < slots_per_token(r); ++k) {
                const auto found = row_of_slot.find(token * slots_per_token(r) + k);
                if (found == row_of_slot.end()) continue;
                const Row& row = found->second;
                const ConstTensorView rows =
                    r.senders.empty() ? r.recv_y : r.senders[static_cast<size_t>(row.place.first)];
                const float weight =
                    k < top_k ? static_cast<const float*>(r.expert_scales.data)[token * top_k + k]
                              : 1.0f;
                const float product = element(rows.dtype, rows.data, row.row * hidden + h) * weight;
                sum = sum + product;
            }
            const size_t num_shared = r.shared_rows.rank == 3 ? r.shared_rows.shape[1] : 0;
            for (size_t j = 0; j < num_shared; ++j) {
                const size_t at = (token * num_shared + j) * hidden + h;
                sum = sum + element(r.shared_rows.dtype, r.shared_rows.data, at);
            }
            set_element(r.y.dtype, r.y.data, token * hidden + h, sum);
        }
    }
    return {};
}

}  // namespace afd::ops::reference
