// SPDX-License-Identifier: Apache-2.0
#pragma once

// The entries that the records of the two-phase operators share, bound to the request of each.

#include "ops/format/expert_slots.h"
#include "ops/record/operator_spec.h"

namespace afd::ops::two_phase {

inline constexpr int64_t kRanksMax = 1024;
inline constexpr int64_t kLocalExpertsMax = 65536;

template <typename Request>
inline constexpr AttributeSpec kNumRanks = {
    "num_ranks", bind<Request, &Request::num_ranks>(), "", {}, 1, kRanksMax, "destination ranks"};
template <typename Request>
inline constexpr AttributeSpec kNumLocalExperts = {"num_local_experts",
                                                   bind<Request, &Request::num_local_experts>(),
                                                   "",
                                                   {},
                                                   1,
                                                   kLocalExpertsMax,
                                                   "local ids of every rank are below"};
template <typename Request>
inline constexpr AttributeSpec kSharedExpertNum = {
    "shared_expert_num",
    bind<Request, &Request::shared_expert_num>(),
    "0",
    {},
    0,
    int64_t{kSharedExpertsMax},
    "S, experts that every token goes to; the last ones of expert_rank_table"};
template <typename Request>
inline constexpr AttributeSpec kSessionId = {"session_id",
                                             bind<Request, &Request::session_id>(),
                                             "0",
                                             {},
                                             0,
                                             1023,
                                             "the sender; chooses among replicas"};
template <typename Request>
inline constexpr AttributeSpec kLayerId = {"layer_id",
                                           bind<Request, &Request::layer_id>(),
                                           "0",
                                           {},
                                           0,
                                           INT32_MAX,
                                           "the layer of expert_rank_table"};
template <typename Request>
inline constexpr AttributeSpec kBlockSize = {"block_size",
                                             bind<Request, &Request::block_size>(),
                                             "8192",
                                             {},
                                             1,
                                             1048576,
                                             "tokens of a block"};
template <typename Request>
inline constexpr AttributeSpec kFirstBlock = {"first_block",
                                              bind<Request, &Request::first_block>(),
                                              "0",
                                              {},
                                              0,
                                              INT32_MAX,
                                              "the first block to work on; above 0 done is needed"};
template <typename Request>
inline constexpr AttributeSpec kNumBlocks = {"num_blocks",
                                             bind<Request, &Request::num_blocks>(),
                                             "-1",
                                             {},
                                             -1,
                                             INT32_MAX,
                                             "blocks to work on; -1: the rest"};

template <typename Request>
inline constexpr TensorSpec kExpertIds = {"expert_ids",
                                          bind<Request, &Request::expert_ids>(),
                                          TensorRole::kInput,
                                          {DType::kInt32},
                                          "[N, K]",
                                          "logical experts; an id outside [0, E+S) masks its slot"};
template <typename Request>
inline constexpr TensorSpec kExpertRankTable = {
    "expert_rank_table",
    bind<Request, &Request::expert_rank_table>(),
    TensorRole::kInput,
    {DType::kInt32},
    "[L, X, R, 2]",
    "replicas (rank, local id) of each layer's experts, shared ones last; rank -1: no more"};
template <typename Request>
inline constexpr TensorSpec kSortedIndices = {"sorted_indices",
                                              bind<Request, &Request::sorted_indices>(),
                                              TensorRole::kInput,
                                              {DType::kInt32},
                                              "[N*K+N*shared_expert_num]",
                                              "of two_phase_layout"};
template <typename Request>
inline constexpr TensorSpec kSendCounts = {"send_counts",
                                           bind<Request, &Request::send_counts>(),
                                           TensorRole::kInput,
                                           {DType::kInt32},
                                           "[num_ranks, num_local_experts]",
                                           "of two_phase_layout"};
template <typename Request>
inline constexpr TensorSpec kBase = {"base",
                                     bind<Request, &Request::base>(),
                                     TensorRole::kInput,
                                     {DType::kInt64},
                                     "[num_ranks, num_local_experts]",
                                     "the first row granted to this sender, of two_phase_offsets"};
template <typename Request>
inline constexpr TensorSpec kDone = {"done",
                                     bind<Request, &Request::done>(),
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
