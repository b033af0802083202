// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/row_bounds.h"

#include <algorithm>
#include <cmath>

namespace afd::ops {
namespace {

size_t fraction_of(double fraction, size_t worst_case) {
    // Rounded up and never 0: a fraction bounds memory, it does not forbid calls.
    const double part = std::ceil(fraction * static_cast<double>(worst_case));
    return std::clamp<size_t>(static_cast<size_t>(part), 1, worst_case);
}

// Whether one more token fits; if so, it is counted.
bool take_token(const MoeInput& input, size_t token, size_t places, std::span<uint32_t> counts) {
    const std::span ids(input.topk_ids + token * input.top_k, input.top_k);
    const auto goes_to = [&](size_t k) {
        return ids[k] >= 0 && static_cast<size_t>(ids[k]) < counts.size() &&
               std::find(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(k), ids[k]) ==
                   ids.begin() + static_cast<ptrdiff_t>(k);
    };
    for (size_t k = 0; k < ids.size(); ++k) {
        if (goes_to(k) && counts[static_cast<size_t>(ids[k])] == places) return false;
    }
    for (size_t k = 0; k < ids.size(); ++k) {
        if (goes_to(k)) ++counts[static_cast<size_t>(ids[k])];
    }
    return true;
}

}  // namespace

RowBounds row_bounds(const PrepareFinalizeCapability& record, const FusedMoeConfig& config) {
    RowBounds bounds{config.num_micro_batches, config.max_num_tokens, {}};
    const bool holds_fewer_batches = config.overflow == RowOverflow::kBackpressure;
    // Back-pressure saves whole batches, so each of them is as large as ever; the other two ways
    // save rows of each batch.
    if (holds_fewer_batches) {
        bounds.num_batches = fraction_of(config.row_fraction, config.num_micro_batches);
    }
    const double fraction = holds_fewer_batches ? 1.0 : config.row_fraction;
    if (record.activation_format == ActivationFormat::kBatched) {
        const Capacity places = record.max_num_tokens_per_rank.of(record.num_dispatchers);
        bounds.places = Capacity(fraction_of(fraction, places.value()));
    } else {
        bounds.num_tokens = fraction_of(fraction, config.max_num_tokens);
    }
    return bounds;
}

Count tokens_that_fit(ActivationFormat format,
                      const RowBounds& bounds,
                      const MoeInput& input,
                      TokenRow first,
                      std::span<uint32_t> counts) {
    const auto begin = static_cast<size_t>(first);
    size_t num_tokens = std::min(input.num_tokens - begin, bounds.num_tokens);
    if (format != ActivationFormat::kBatched) return Count(num_tokens);
    const size_t places = bounds.places.value();
    // Even one expert that everybody names has room, so nothing has to be counted.
    if (num_tokens <= places) return Count(num_tokens);
    // Every token has a row with each shared expert.
    if (input.num_shared > 0) num_tokens = places;
    std::fill(counts.begin(), counts.end(), 0);
    size_t taken = 0;
    while (taken < num_tokens && take_token(input, begin + taken, places, counts)) ++taken;
    return Count(taken);
}

}  // namespace afd::ops
