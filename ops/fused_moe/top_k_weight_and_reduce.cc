// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/top_k_weight_and_reduce.h"

#include <algorithm>

#include "ops/experts/combine.h"
#include "ops/tensor/row_tasks.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

CombineRequest request_for(const ExpertsOutput& output,
                           const MoeInput& input,
                           size_t num_experts,
                           Rows<Bf16> out) {
    const size_t row_bytes = output.rows.stride * sizeof(Bf16);
    CombineRequest request;
    request.num_tokens = input.num_tokens;
    request.top_k = input.top_k;
    // Rows of a shared stage lie by themselves and are added last, like those of slots that were
    // dispatched: the order of the sum is one for both, and so are the bits.
    const bool is_apart = output.num_shared > 0;
    AFD_ASSERT(!is_apart || input.num_shared == 0, "%u slots shared twice", input.num_shared);
    request.num_shared = is_apart ? output.num_shared : input.num_shared;
    request.shared_rows = output.shared;
    request.topk_ids = input.topk_ids;
    request.num_experts = static_cast<int64_t>(num_experts);
    request.topk_weights = input.topk_weights;
    request.rows = reinterpret_cast<const std::byte*>(output.rows.data);
    request.token_stride_bytes = input.num_slots() * row_bytes;
    request.slot_stride_bytes = row_bytes;
    request.out = out;
    return request;
}

class NoOp final : public TopKWeightAndReduce {
  public:
    WeightAndReduceKind kind() const override { return WeightAndReduceKind::kNoOp; }
    void apply(const ExpertsOutput& output,
               const MoeInput& input,
               size_t,
               const int32_t*,
               Rows<Bf16> out,
               Parallel& parallel) const override {
        const auto copy = [&](size_t first, size_t last, unsigned) {
            for (size_t token = first; token < last; ++token) {
                std::copy_n(output.rows.row(token), out.num_cols, out.row(token));
            }
        };
        for_rows(
            parallel, input.num_tokens, out.num_cols * sizeof(Bf16) / kCopiedBytesPerElement, copy);
    }
};

class Contiguous final : public TopKWeightAndReduce {
  public:
    WeightAndReduceKind kind() const override { return WeightAndReduceKind::kContiguous; }
    void apply(const ExpertsOutput& output,
               const MoeInput& input,
               size_t num_experts,
               const int32_t*,
               Rows<Bf16> out,
               Parallel& parallel) const override {
        combine(request_for(output, input, num_experts, out), parallel);
    }
};

class NaiveBatched final : public TopKWeightAndReduce {
  public:
    WeightAndReduceKind kind() const override { return WeightAndReduceKind::kNaiveBatched; }
    void apply(const ExpertsOutput& output,
               const MoeInput& input,
               size_t num_experts,
               const int32_t* batched_rows,
               Rows<Bf16> out,
               Parallel& parallel) const override {
        AFD_ASSERT(batched_rows != nullptr, "batched rows need their index");
        CombineRequest request = request_for(output, input, num_experts, out);
        request.row_index = batched_rows;
        combine(request, parallel);
    }
};

class Delegate final : public TopKWeightAndReduce {
  public:
    WeightAndReduceKind kind() const override { return WeightAndReduceKind::kDelegate; }
    void apply(const ExpertsOutput&, const MoeInput&, size_t, const int32_t*, Rows<Bf16>, Parallel&)
        const override {
        AFD_ASSERT(false, "delegate: the PrepareFinalize reduces in its own combine");
    }
};

}  // namespace

const TopKWeightAndReduce& top_k_weight_and_reduce(WeightAndReduceKind kind) {
    // One of each for all: they keep no state.
    static const NoOp no_op;
    static const Contiguous contiguous;
    static const NaiveBatched naive_batched;
    static const Delegate delegate;
    switch (kind) {
        case WeightAndReduceKind::kNoOp:
            return no_op;
        case WeightAndReduceKind::kContiguous:
            return contiguous;
        case WeightAndReduceKind::kNaiveBatched:
            return naive_batched;
        case WeightAndReduceKind::kDelegate:
            return delegate;
    }
    AFD_ASSERT(false, "kind %d", static_cast<int>(kind));
    return no_op;
}

}  // namespace afd::ops
