// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/online_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/format/attention_batch.h"

namespace afd::ops::reference {

std::vector<double> online_softmax(const std::vector<double>& scores,
                                   const Matrix& rows,
                                   Rounding rounding,
                                   size_t first_position,
                                   std::optional<double> sink) {
    const size_t end = first_position + scores.size();
    // Without rounding points the block size does not matter: one block is the plain softmax.
    const size_t block = rounding == Rounding::kBf16 ? kAttentionBlock : end;
    double maximum = sink.value_or(-std::numeric_limits<double>::infinity());
    double sum = sink ? 1 : 0;
    std::vector<double> o(rows.num_cols, 0.0);
    for (size_t first = first_position; first < end;) {
        const size_t last = std::min(end, (first / block + 1) * block);
        const double previous = maximum;
        const auto score = [&](size_t i) { return scores[i - first_position]; };
        for (size_t i = first; i < last; ++i) maximum = std::max(maximum, score(i));
        const double alpha = std::exp(previous - maximum);
        sum *= alpha;
        for (double& value : o) value *= alpha;
        for (size_t i = first; i < last; ++i) {
            const double p = std::exp(score(i) - maximum);
            sum += p;
            const double rounded = round_point(p, rounding);
            for (size_t c = 0; c < o.size(); ++c) o[c] += rounded * rows.at(i, c);
        }
        first = last;
    }
    for (double& value : o) value /= sum;
    return o;
}

}  // namespace afd::ops::reference
