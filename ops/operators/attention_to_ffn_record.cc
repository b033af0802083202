// SPDX-License-Identifier: Apache-2.0

// The record of AttentionToFFN and the check of a request against it.

#include <algorithm>
#include <tuple>

#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/context_check.h"
#include "ops/tensor/workspace.h"
#include "schedule/layout/geometry.h"

namespace afd::ops {
namespace {

using Request = AttentionToFfnRequest;

constexpr int64_t kOffOrOn[] = {0, 1};
constexpr int64_t kQuantModes[] = {-1, 1};

constexpr AttributeSpec kAttributes[] = {
    {"session_id", bind<&Request::session_id>(), "", {}, 0, 1023, "the attention worker"},
    {"micro_batch_id", bind<&Request::micro_batch_id>(), "", {}, 0, 63, "the micro-batch"},
    {"layer_id", bind<&Request::layer_id>(), "", {}, 0, INT32_MAX, "the layer"},
    {"quant_mode",
     bind<&Request::quant_mode>(),
     "-1",
     kQuantModes,
     0,
     0,
     "rows as they are; int8 by dynamic quantisation"},
    {"sync_flag",
     bind<&Request::sync_flag>(),
     "1",
     kOffOrOn,
     0,
     0,
     "publishes to the workers that got a row; to every worker"},
    {"round", bind<&Request::round>(), "1", {}, 1, INT32_MAX, "value of the published flag"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     bind<&Request::context>(),
     TensorRole::kInput,
     {DType::kInt8},
     "[1024]",
     "dimensions, and the places of the buffers in every FFN window"},
    {"ffn_windows",
     bind<&Request::ffn_windows>(),
     TensorRole::kInPlace,
     {DType::kUint8},
     "[F, ?]",
     "window of each FFN worker"},
    {"x",
     bind<&Request::x>(),
     TensorRole::kInput,
     {DType::kBf16, DType::kFp16},
     "[T, H]",
     "token rows"},
    {"expert_ids",
     bind<&Request::expert_ids>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[T, K]",
     "logical experts; an id outside [0, E+S) masks its slot"},
    {"expert_rank_table",
     bind<&Request::expert_rank_table>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[L, X, R, 2]",
     "replicas (rank, local id) of each layer's experts, shared ones last; rank -1: no more"},
    {"scales",
     bind<&Request::scales>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[L, X, H]",
     "smooth scales"},
    {"active_mask",
     bind<&Request::active_mask>(),
     TensorRole::kOptionalInput,
     {DType::kBool},
     "[T]",
     "which tokens are there; not given: all"},
    {"slot_ranks",
     bind<&Request::slot_ranks>(),
     TensorRole::kOptionalOutput,
     {DType::kInt32},
     "[T, K1]",
     "worker of each slot, or -1; not in the seed"},
};

constexpr std::string_view kRules[] = {
    "X is E+S, the context's expert_num; K1 is its selected_expert_num, S = K1 - K is 0 to 4, K is "
    "1 to 64.",
    "session_id, micro_batch_id, T and layer_id are within session_num, micro_batch_num, "
    "micro_batch_size and L.",
    "attn_to_ffn_token_size is a positive multiple of 512 that holds a row: H values, or H bytes "
    "and a fp32 scale.",
    "token_info_buf and token_data_buf lie inside every window.",
    "Every expert of the layer has at least one replica; ranks are below F, local ids are 0 to "
    "2130706430 (larger ones mask a slot or offer a token), and no two experts have one place.",
    "active_mask has its true entries first; scales need quant_mode 1.",
};

constexpr int32_t kLocalIdMost = schedule::kLeastOfferedId - 1;
static_assert(kLocalIdMost == 2130706430, "a rule has the number");

void check_below(
    OperatorCheck& check, const char* name, int64_t value, const char* limit_name, uint64_t limit) {
    check.require(value >= 0 && static_cast<uint64_t>(value) < limit,
                  "{} is {}; it must be 0 or more and below {}, {}",
                  with(name, value, limit_name, limit));
}

void check_dimensions_of(OperatorCheck& check, const AttentionToFfnRequest& r) {
    const auto& common = r.context->common;
    check_dimensions(check, common);
    check_below(check, "session_id", r.session_id, "session_num", common.session_num);
    check_below(
        check, "micro_batch_id", r.micro_batch_id, "micro_batch_num", common.micro_batch_num);
    check_below(check, "layer_id", r.layer_id, "L", check.size("L"));
    check.require(check.size("T") <= common.micro_batch_size,
                  "x has {} rows; at most micro_batch_size, {}, are allowed",
                  with(check.size("T"), common.micro_batch_size));
    const size_t top_k = check.size("K");
    check_selected_experts(check, common, top_k);
    check.require(check.size("X") + top_k >= common.selected_expert_num,
                  "expert_rank_table has {} experts a layer; the shared ones alone are {}",
                  with(check.size("X"), common.selected_expert_num - top_k));
    // The way back masks by the context alone: with another number there, it would await slots that
    // were not sent, or sum rows of an earlier round.
    check.require(check.size("X") == common.expert_num,
                  "expert_rank_table has {} experts a layer; it must be the context's expert_num, "
                  "{}",
                  with(check.size("X"), common.expert_num));
}

void check_buffers(OperatorCheck& check, const AttentionToFfnRequest& r) {
    const auto& common = r.context->common;
    const auto& ffn = r.context->ffn;
    const uint64_t hidden = check.size("H");
    check_token_size(check,
                     "attn_to_ffn_token_size",
                     common.attn_to_ffn_token_size,
                     r.quant_mode == 1 ? hidden + sizeof(float) : 2 * hidden);
    const uint64_t slots = uint64_t{common.micro_batch_size} * common.selected_expert_num;
    for (const std::span<std::byte>& window : r.ffn_windows) {
        check_buffer(check,
                     {"token_info_buf", ffn.token_info_buf, ffn.token_info_buf_size, 4},
                     {common.session_num, common.micro_batch_num, 2 + slots, sizeof(int32_t)},
                     window.size(),
                     "an FFN window");
        check_buffer(
            check,
            {"token_data_buf", ffn.token_data_buf, ffn.token_data_buf_size, 1},
            {common.session_num, common.micro_batch_num, slots, common.attn_to_ffn_token_size},
            window.size(),
            "an FFN window");
    }
}

struct Place {
    int32_t rank;
    int32_t local_id;
    uint32_t entry;  // Of the layer's table, [X][R].
};

// The layer's places. What is wrong with one by itself is said here.
std::span<Place> take_places(OperatorCheck& check,
                             const AttentionToFfnRequest& r,
                             WorkspaceCursor workspace) {
    const size_t num_replicas = check.size("R");
    const size_t num_entries = check.size("X") * num_replicas;
    const auto* layer = static_cast<const int32_t*>(r.expert_rank_table.data) +
                        static_cast<size_t>(r.layer_id) * num_entries * 2;
    const auto num_ranks = static_cast<int64_t>(r.ffn_windows.size());
    auto* places = workspace.take<Place>(num_entries);
    size_t num_places = 0;
    bool has_ended = false;
    for (size_t i = 0; i < num_entries; ++i) {
        const int32_t rank = layer[2 * i];
        const int32_t local_id = layer[2 * i + 1];
        const size_t replica = i % num_replicas;
        // A rank of -1 ends an expert's list; what is behind it is nobody's.
        if (replica == 0) has_ended = false;
        if (has_ended) continue;
        has_ended = rank < 0;
        check.require(rank >= (replica == 0 ? 0 : -1) && rank < num_ranks,
                      "expert_rank_table[{}, {}, {}] has rank {}; allowed are {} to {}",
                      with(r.layer_id,
                           i / num_replicas,
                           replica,
                           rank,
                           replica == 0 ? "0" : "-1",
                           num_ranks - 1));
        check.require(rank < 0 || (local_id >= 0 && local_id <= kLocalIdMost),
                      "expert_rank_table[{}, {}, {}] has local id {}; allowed are 0 to {}",
                      with(r.layer_id, i / num_replicas, replica, local_id, kLocalIdMost));
        if (rank >= 0) places[num_places++] = {rank, local_id, static_cast<uint32_t>(i)};
    }
    return {places, num_places};
}

// Two experts in one place would mix their rows.
void check_places(OperatorCheck& check, const AttentionToFfnRequest& r, std::span<Place> places) {
    const auto key = [](const Place& place) { return std::tie(place.rank, place.local_id); };
    std::ranges::sort(places, [&](const Place& a, const Place& b) {
        return std::tuple(key(a), a.entry) < std::tuple(key(b), b.entry);
    });
    const size_t num_replicas = check.size("R");
    // The first entry of the table whose place another expert has already.
    const Place* taken = nullptr;
    size_t taken_by = 0;
    const Place* first = nullptr;  // Of those of one place.
    for (const Place& place : places) {
        if (first == nullptr || key(*first) != key(place)) first = &place;
        const size_t holder = first->entry / num_replicas;
        const bool is_other = holder != place.entry / num_replicas;
        if (is_other && (taken == nullptr || place.entry < taken->entry)) {
            taken = &place;
            taken_by = holder;
        }
    }
    if (taken == nullptr) return;
    check.require(false,
                  "expert_rank_table[{}, {}, {}] is ({}, {}), the place of expert {}",
                  with(r.layer_id,
                       taken->entry / num_replicas,
                       taken->entry % num_replicas,
                       taken->rank,
                       taken->local_id,
                       taken_by));
}

void check_mask(OperatorCheck& check, const AttentionToFfnRequest& r) {
    const auto* mask = static_cast<const uint8_t*>(r.active_mask.data);
    for (size_t t = 1; t < r.active_mask.num_elements(); ++t) {
        check.require(mask[t] == 0 || mask[t - 1] != 0,
                      "active_mask[{}] is true behind a false one; true entries come first",
                      with(t));
    }
}

}  // namespace

const RecordOf<AttentionToFfnRequest> kAttentionToFfnSpec = {
    {"attention_to_ffn",
     "the rows of one micro-batch, written into the windows of the FFN workers and published",
     "window[rank].data[session_id][micro_batch_id][t][k] = op(x[t]), rank from "
     "expert_rank_table[layer_id, expert_ids[t, k]]",
     "docs/specification.md, sections 1 and 4",
     kAttributes,
     kTensors,
     kRules,
     {}}};

size_t attention_to_ffn_check_bytes(size_t num_places) {
    return workspace_bytes_of<Place>(num_places);
}

Result<> check_attention_to_ffn(const AttentionToFfnRequest& r, std::span<std::byte> workspace) {
    OperatorCheck check(kAttentionToFfnSpec, r);
    check.attributes();
    check.tensor("schedule_context");
    check.require(!r.ffn_windows.empty(), "ffn_windows is missing; at least one is needed");
    if (r.context != nullptr) check.bind("K1", r.context->common.selected_expert_num);
    check.tensors();
    check.require(r.scales.num_elements() == 0 || r.quant_mode == 1,
                  "quant_mode is {}; only quant_mode 1 takes scales",
                  with(r.quant_mode));
    AFD_TRY(check.finish());
    check.require(check.size("R") >= 1, "expert_rank_table has no replica");
    check_dimensions_of(check, r);
    AFD_TRY(check.finish());
    check_buffers(check, r);
    const size_t bytes = attention_to_ffn_check_bytes(check.size("X") * check.size("R"));
    const Workspace own(workspace.empty() ? bytes : 0);
    const WorkspaceCursor cursor(workspace.empty() ? own.bytes() : workspace);
    check_places(check, r, take_places(check, r, cursor));
    check_mask(check, r);
    return check.finish();
}

}  // namespace afd::ops
