// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts that the records of the two-phase operators have in common.

#include "ops/record/operator_spec.h"

namespace afd::ops::two_phase {

inline constexpr int64_t kRanksMax = 1024;
inline constexpr int64_t kLocalExpertsMax = 65536;
inline constexpr int64_t kSharedMax = 4;

inline constexpr AttributeSpec kNumRanks = {
    "num_ranks", AttributeKind::kInt, "", {}, 1, kRanksMax, "destination ranks"};
inline constexpr AttributeSpec kNumLocalExperts = {"num_local_experts",
                                                   AttributeKind::kInt,
                                                   "",
                                                   {},
                                                   1,
                                                   kLocalExpertsMax,
                                                   "local ids of every rank are below"};
inline constexpr AttributeSpec kSharedExpertNum = {
    "shared_expert_num",
    AttributeKind::kInt,
    "0",
    {},
    0,
    kSharedMax,
    "S, experts that every token goes to; the last ones of expert_rank_table"};
inline constexpr AttributeSpec kSessionId = {
    "session_id", AttributeKind::kInt, "0", {}, 0, 1023, "the sender; chooses among replicas"};
inline constexpr AttributeSpec kLayerId = {
    "layer_id", AttributeKind::kInt, "0", {}, 0, INT32_MAX, "the layer of expert_rank_table"};
inline constexpr AttributeSpec kBlockSize = {
    "block_size", AttributeKind::kInt, "8192", {}, 1, 1048576, "tokens of a block"};
inline constexpr AttributeSpec kFirstBlock = {"first_block",
                                              AttributeKind::kInt,
                                              "0",
                                              {},
                                              0,
                                              INT32_MAX,
                                              "the first block to work on; above 0 done is needed"};
inline constexpr AttributeSpec kNumBlocks = {
    "num_blocks", AttributeKind::kInt, "-1", {}, -1, INT32_MAX, "blocks to work on; -1: the rest"};

inline constexpr TensorSpec kExpertIds = {"expert_ids",
                                          TensorRole::kInput,
                                          {DType::kInt32},
                                          "[N, K]",
                                          "logical experts; an id outside [0, E) masks its slot"};
inline constexpr TensorSpec kExpertRankTable = {
    "expert_rank_table",
    TensorRole::kInput,
    {DType::kInt32},
    "[L, X, R, 2]",
    "replicas (rank, local id) of each layer's experts, shared ones last; rank -1: no more"};
inline constexpr TensorSpec kSortedIndices = {"sorted_indices",
                                              TensorRole::kInput,
                                              {DType::kInt32},
                                              "[N*K+N*shared_expert_num]",
                                              "of two_phase_layout"};
inline constexpr TensorSpec kSendCounts = {"send_counts",
                                           TensorRole::kInput,
                                           {DType::kInt32},
                                           "[num_ranks, num_local_experts]",
                                           "of two_phase_layout"};
inline constexpr TensorSpec kBase = {"base",
                                     TensorRole::kInput,
                                     {DType::kInt64},
                                     "[num_ranks, num_local_experts]",
                                     "the first row granted to this sender, of two_phase_offsets"};
inline constexpr TensorSpec kDone = {"done",
                                     TensorRole::kOptionalInPlace,
                                     {DType::kInt64},
                                     "[num_ranks, num_local_experts]",
                                     "rows of the blocks before; advanced"};

inline constexpr std::string_view kTableRule =
    "X is E+S; every expert of the layer has at least one replica, and no place is given twice.";
inline constexpr std::string_view kSlotsRule = "N*(K+S) is at most 2147483647.";
inline constexpr std::string_view kIndicesRule =
    "An entry of sorted_indices is -1 or a slot of its own block that is not masked; a rank and "
    "local expert has no more of them, those of done included, than send_counts says.";
inline constexpr std::string_view kBaseRule =
    "With send_counts above 0, base to base + send_counts lies inside the rank's rows.";
inline constexpr std::string_view kBlocksRule =
    "first_block + num_blocks is at most the number of blocks.";

}  // namespace afd::ops::two_phase
