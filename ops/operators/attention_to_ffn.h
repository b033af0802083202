// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionToFFN: the rows of one micro-batch, written into the windows of the FFN workers that
// hold their experts, then published.
//
//   window[rank].data[session_id][micro_batch_id][t][k] = op(x[t]), (rank, local id) = the replica
//   of expert_ids[t, k] in expert_rank_table[layer_id]; the shared expert j is slot K + j
//
// op copies, or quantises to int8 with the scale behind the values (ops/linear/quantise.h). A
// worker's descriptor gets the local ids of its slots, every other slot masked, the layer, and last
// the flag `round`. Tokens that active_mask leaves out are masked everywhere. This is data movement
// only: that the previous round was acknowledged is the caller's business.
//
// Masks, one rule for the way there and back (attention_worker_combine.h): an id outside
// [0, E+S) masks its slot, which is neither sent nor awaited; an id from E on is a pick of that
// shared expert, sent to its place like any other. E+S is the size of expert_rank_table, which
// must be common.expert_num of the context.
//
// The daemon's attention loop does the same with schedule/dispatch/dispatch_lane.h, round by round
// and with doorbells; this is the operator that stands alone. Source: docs/specification.md,
// sections 1 and 4.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::schedule {
struct ScheduleContext;
}

namespace afd::ops {

struct AttentionToFfnRequest;
extern const RecordOf<AttentionToFfnRequest> kAttentionToFfnSpec;

// Chooses one of `num_replicas` >= 1 places of an expert.
using ReplicaPolicy = size_t (*)(int64_t session_id, size_t num_replicas);

// The default policy: session_id mod num_replicas.
size_t replica_of_session(int64_t session_id, size_t num_replicas);

struct AttentionToFfnRequest {
    int64_t session_id = 0;
    int64_t micro_batch_id = 0;
    int64_t layer_id = 0;
    int64_t quant_mode = -1;  // -1 rows as they are, 1 int8 by dynamic quantisation
    int64_t sync_flag = 1;    // 1 publishes to every worker, 0 to those that got at least one row
    int64_t round = 1;        // The flag's value.
    ReplicaPolicy choose_replica = replica_of_session;

    // Dimensions; ffn.token_info_buf and token_data_buf are byte offsets into every window.
    const schedule::ScheduleContext* context = nullptr;
    std::span<const std::span<std::byte>> ffn_windows = {};  // [F], index is the rank

    ConstTensorView x;                  // [T, H] bf16 or fp16, T <= BS
    ConstTensorView expert_ids;         // [T, K] int32, logical; outside [0, E+S): masked
    ConstTensorView expert_rank_table;  // [L, E+S, R, 2] int32: (rank, local id); rank -1: no more
    ConstTensorView scales = {};        // [L, E+S, H] fp32 smooth scales, with quant_mode 1
    ConstTensorView active_mask = {};   // [T] bool, true entries first; not given: all active

    TensorView slot_ranks = {};  // [T, K+S] int32: rank that got the slot, or -1; not in the seed.
};

// Everything that a request can be refused for. It sorts a layer's places in `workspace`, of
// attention_to_ffn_check_bytes, or in memory of its own where that is empty.
Result<> check_attention_to_ffn(const AttentionToFfnRequest& request,
                                std::span<std::byte> workspace = {});
size_t attention_to_ffn_check_bytes(size_t num_places);

// num_places: (E+S)·R.
size_t attention_to_ffn_workspace_bytes(size_t num_tokens,
                                        size_t num_slots,
                                        size_t num_workers,
                                        size_t num_places);

// Errors: kInvalidArgument; then nothing was written. Bytes do not depend on the threads.
Result<> attention_to_ffn(const AttentionToFfnRequest& request,
                          std::span<std::byte> workspace,
                          Parallel& parallel);

}  // namespace afd::ops
