// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/moe_finalize_routing.h"

#include "ops/experts/weighted_sum.h"
#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/row_tasks.h"

namespace afd::ops {
namespace {

template <typename T>
class Finalize {
  public:
    explicit Finalize(const MoeFinalizeRoutingRequest& r)
        : r_(r),
          hidden_(r.out.shape[1]),
          top_k_(r.out.shape[0] == 0 ? 0 : r.expanded_row_idx.shape[0] / r.out.shape[0]) {}

    void token(size_t n) const {
        T* out = static_cast<T*>(r_.out.data) + n * hidden_;
        weighted_sum(hidden_, out, [&](WeightedSum<T>& sum) { add_rows(n, sum); });
    }

  private:
    // Row `row` of an optional tensor; null if it is not given.
    static const T* row_of(const ConstTensorView& view, size_t row) {
        if (view.num_elements() == 0) return nullptr;
        return static_cast<const T*>(view.data) + row * view.shape[view.rank - 1];
    }

    float weight(size_t f) const {
        if (r_.scales.num_elements() == 0) return 1.0f;
        return with_float_type(r_.scales.dtype, [&](auto zero) {
            return to_float(static_cast<const decltype(zero)*>(r_.scales.data)[f]);
        });
    }

    void add_rows(size_t n, WeightedSum<T>& sum) const {
        // x1 begins the sum and is not added to a zero: −0 would become +0.
        if (const T* x1 = row_of(r_.x1, n)) sum.start(x1);
        if (const T* x2 = row_of(r_.x2, n)) sum.add(x2);
        for (size_t f = n * top_k_; f < (n + 1) * top_k_; ++f) {
            const int32_t index = static_cast<const int32_t*>(r_.expanded_row_idx.data)[f];
            if (index < 0) continue;
            const T* row = row_of(r_.expanded_x, static_cast<size_t>(index));
            if (r_.bias.num_elements() == 0) {
                sum.add(row, weight(f));
            } else {
                const int32_t expert = static_cast<const int32_t*>(r_.expert_idx.data)[f];
                sum.add(row, row_of(r_.bias, static_cast<size_t>(expert)), weight(f));
            }
        }
    }

    const MoeFinalizeRoutingRequest& r_;
    size_t hidden_;
    size_t top_k_;
};

}  // namespace

Result<> moe_finalize_routing(const MoeFinalizeRoutingRequest& request,
                              std::span<std::byte>,
                              Parallel& parallel) {
    AFD_TRY(check_moe_finalize_routing(request));
    const size_t num_tokens = request.out.shape[0];
    // Before the division by num_tokens.
    if (request.out.num_elements() == 0) return {};
    const size_t elements = request.out.shape[1] * (request.expanded_row_idx.shape[0] / num_tokens);
    with_float_type(request.out.dtype, [&](auto zero) {
        const Finalize<decltype(zero)> finalize(request);
        for_rows(parallel, num_tokens, elements, [&](size_t first, size_t last, unsigned) {
            for (size_t n = first; n < last; ++n) finalize.token(n);
        });
    });
    return {};
}

}  // namespace afd::ops
