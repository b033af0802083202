// SPDX-License-Identifier: Apache-2.0
#pragma once

// Router: the gates of all MoE layers, and what they choose for a row:
//
//   logits = x · Wgateᵀ (+ bias, where the gate has one) in fp32 (ops/linear/linear.h);
//   topk_ids, topk_weights = MoeGatingTopK(logits), or sparsemixer(logits)
//
// Row and gate come in up to three parts of bf16 each, x + middle + low (RowRest) and W0 + W1 + W2
// (model/checkpoint/router_tensors.h). Each part of the row is multiplied with each part of the
// gate, and the products, which are fp32 sums of their own, are added in fp32 in one order: that of
// the row's parts, and for each of them that of the gate's,
//
//   logits = ((((((((x·W0 + x·W1) + x·W2) + middle·W0) + middle·W1) + middle·W2) + low·W0) + ...
//
// without the products of parts that are not there.
//
// The two choices are those of ops/experts/gating_rows.h. In a hash layer topk_ids = the table's
// row of the token id, whatever the logits, and topk_weights are the scores at these ids,
// normalised and scaled as in the other layers.
//
// What it chose stays in topk_ids: to capture it (routing replay), give each layer memory
// of its own. The ids are the checkpoint's, before any placement.
//
// Held by whoever routes: the attention worker, or with router = ffn each FFN worker. The same row
// and numeric class give the same ids and the same bits of the weights everywhere (promise 1).
// Const and thread-safe; a workspace serves one call at a time. route() allocates nothing.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/family/model_files.h"
#include "ops/experts/gating_rows.h"
#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"

namespace afd::model {

// REQUIRES: config has experts.
ops::GatingAttributes gating_attributes(const ModelConfig& config);

// Where route() writes, and what it asks beside the rows.
struct Routing {
    int32_t* topk_ids;                   // out [num_tokens, top_k]: logical expert, -1 masked.
    float* topk_weights;                 // out [num_tokens, top_k]
    const int32_t* token_ids = nullptr;  // [num_tokens], below vocab_size; for hash layers.

    // The rows from `row` on.
    Routing from(size_t row, size_t top_k) const {
        return {topk_ids + row * top_k,
                topk_weights + row * top_k,
                token_ids == nullptr ? nullptr : token_ids + row};
    }
};

// Whose gates load() takes. Token ids stay with the attention workers, so these route hash layers
// also where FFN workers route the others.
enum class GateSet { kAll, kHashLayers, kOtherLayers };

// What the rounding of a row to bf16 left (ops::SplitRows), with residual = fp32. Shapes:
// [num_tokens, hidden], or none.
struct RowRest {
    ops::Rows<const ops::Bf16> middle = {};
    ops::Rows<const ops::Bf16> low = {};
};

class Router {
  public:
    // One MoE layer's gate.
    struct Gate {
        ops::PackedLinear weight;            // [num_parts · num_experts, hidden]
        std::vector<float> bias;             // [num_experts], or empty.
        std::vector<float> logit_bias;       // [num_experts], or empty.
        std::vector<int32_t> token_experts;  // [vocab_size, top_k] in a hash layer, or empty.
    };

    // Routes nothing: empty() holds.
    Router() = default;

    // `gates`: one per layer; one without weights marks a dense layer. REQUIRES: the outputs of
    // each weight are a multiple of num_experts. Errors: kInvalidArgument names the attribute that
    // no gate can have.
    static Result<Router> make(const ops::GatingAttributes& attributes, std::vector<Gate> gates);

    // Loads and packs the gates of every MoE layer of the set. Errors: those of
    // read_router_tensors().
    static Result<Router> load(const ModelFiles& files,
                               ops::NumericClass numeric_class,
                               GateSet gates = GateSet::kAll);
    // Of these layers only.
    static Result<Router> load(const ModelFiles& files,
                               ops::NumericClass numeric_class,
                               GateSet gates,
                               LayerRange layers);

    bool empty() const { return gates_.empty(); }
    // Whether the layer's rows are routed; false for a dense layer and any layer out of range.
    bool routes(uint32_t layer) const {
        return layer < gates_.size() && !gates_[layer].weight.empty();
    }
    const ops::GatingAttributes& attributes() const { return attributes_; }

    // For route() of up to rows_max rows, on up to num_threads. `has_rest`: it gets RowRest.
    size_t workspace_bytes(size_t rows_max, unsigned num_threads, bool has_rest = false) const;

    // A row whose scores hold a NaN gets NaN weights: see is_poisoned().
    // Shape: x [num_tokens, hidden]. REQUIRES: routes(layer); in a hash layer out.token_ids.
    void route(uint32_t layer,
               ops::Rows<const ops::Bf16> x,
               const Routing& out,
               std::span<std::byte> workspace,
               ops::Parallel& parallel,
               const RowRest& rest = {}) const;

  private:
    ops::Rows<float> multiply(const Gate& gate,
                              ops::Rows<const ops::Bf16> x,
                              const RowRest& rest,
                              ops::WorkspaceCursor& cursor,
                              ops::Parallel& parallel) const;
    void choose(const Gate& gate,
                ops::Rows<float> logits,
                const Routing& out,
                std::span<std::byte> scratch) const;

    ops::GatingAttributes attributes_;
    std::vector<Gate> gates_;  // [num_layers]
};

// Whether the router met a NaN in this row; the daemon ends such a request with an error.
// Shape: topk_weights [top_k] of one row.
inline bool is_poisoned(const float* topk_weights) {
    return topk_weights[0] != topk_weights[0];
}

}  // namespace afd::model
