// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnRouter: a pass of rows that this FFN worker routes itself (router = ffn).
//
// Every token of an MoE layer is offered once to every rank, except those that its offer names as
// left out (R12). Each that gets it runs the same gate over the same rows, so all of them know the
// same choice. Each keeps the (token, k) whose expert the placement gives to it; of replicas, all
// choose the same among the ranks that are not left out. So each (token, k) has exactly one owner:
//
//   offered rows -> gate -> logical ids -> this rank's keys -> MoeInitRoutingV3 -> ExpertBatch
//
// MoeInitRoutingV3 wants its experts as one range. A rank's experts need not be neighbours, so it
// counts keys instead: 0 ... num_keys-1 are this rank's (layer · local experts + local id), which
// is the active range, and num_keys is any expert elsewhere. Slots that the session chose itself
// (shared experts, dense layers, layers that route by token id) come with local ids and weight 1
// and join the same sort.
//
// Rows are copied out of the window once, before the gate reads them. A row whose scores hold a NaN
// keeps NaN weights: the session sees them and ends the request.

#include <cstdint>
#include <vector>

#include "daemon/ffn/expert_batch.h"
#include "model/decoder/router.h"
#include "ops/tensor/workspace.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class FfnRouter final : public ExpertBatcher {
  public:
    // All outlive the object. `has_rest`: rows bring what their rounding left (sent_rows.h), and
    // the gates see it. Room for the largest pass, A · BS tokens on num_threads threads, is
    // reserved here.
    FfnRouter(const schedule::ReturnTransport& transport,
              const schedule::ExpertPlacement& placement,
              const model::Router& router,
              size_t hidden,
              bool has_rest,
              unsigned num_threads);

    void gather(const schedule::ReadyScan& scan,
                ExpertBatch& batch,
                ops::Parallel& parallel) override;

  private:
    // A token of the pass. Its row is x_[t], its slots keys_[t · K1 ...].
    struct Token {
        uint32_t descriptor;  // Index in scan.taken().
        uint32_t token_idx;
        uint32_t row_slot;  // Its first slot that is used here: 0 of an offered token.
    };

    void list_tokens(const schedule::ReadyScan& scan);
    void copy_rows(const schedule::ReadyScan& scan, ops::Parallel& parallel);
    void route(const schedule::ReadyScan& scan, ops::Parallel& parallel);
    model::RowRest rest_of(size_t first, size_t count) const;
    void name_keys(const schedule::ReadyScan& scan);
    void expand(ExpertBatch& batch, ops::Parallel& parallel);
    void name_slots(const schedule::ReadyScan& scan, ExpertBatch& batch) const;

    // The first id of the token, and whether it says that this rank is to route it.
    int32_t first_id(const schedule::ReadyScan& scan, const Token& token) const {
        return scan.ids(token.descriptor)[size_t{token.token_idx} * num_slots_];
    }
    bool is_offered(const schedule::ReadyScan& scan, const Token& token) const;
    int32_t key_of(int32_t layer_id, int32_t local_id) const {
        return layer_id * static_cast<int32_t>(num_local_) + local_id;
    }

    const schedule::ReturnTransport& transport_;
    const schedule::ExpertPlacement& placement_;
    const model::Router& router_;
    const uint32_t rank_;
    const uint32_t tokens_per_descriptor_;  // BS
    const uint32_t num_slots_;              // K1
    const uint32_t top_k_;
    const size_t num_local_;  // Local ids of a layer.
    const size_t num_keys_;   // Also the id of every expert elsewhere.
    const size_t hidden_;
    std::vector<uint32_t> by_layer_;   // [A] indices of scan.taken(), those of a layer together.
    std::vector<Token> tokens_;        // [A · BS], in the order of by_layer_.
    std::vector<ops::Bf16> x_;         // [A · BS, hidden]
    std::vector<ops::Bf16> sent_;      // has_rest: [A · BS, 3, hidden], rows as sent; or empty.
    std::vector<int32_t> topk_ids_;    // [A · BS, top_k]
    std::vector<float> topk_weights_;  // [A · BS, top_k]
    std::vector<int32_t> keys_;        // [A · BS, K1]
    std::vector<int32_t> row_slots_;   // [A · BS · K1]: of row i its (token, slot).
    ops::Workspace router_workspace_;
    ops::Workspace sort_workspace_;
};

}  // namespace afd::daemon
