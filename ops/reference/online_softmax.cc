// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/online_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/format/attention_batch.h"

namespace afd::ops::reference {

std::vector<double> online_softmax(const std::vector<double>& scores,
                                   const Matrix& rows,
                                   Rounding rounding) {
    // Without rounding points the block size does not matter: one block is the plain softmax.
    const size_t block = rounding == Rounding::kBf16 ? kAttentionBlock : scores.size();
    double maximum = -std::numeric_limits<double>::infinity();
    double sum = 0;
    std::vector<double> o(rows.num_cols, 0.0);
    for (size_t first = 0; first < scores.size(); first += block) {
        const size_t last = std::min(scores.size(), first + block);
        const double previous = maximum;
        for (size_t i = first; i < last; ++i) maximum = std::max(maximum, scores[i]);
        const double alpha = std::exp(previous - maximum);
        sum *= alpha;
        for (double& value : o) value *= alpha;
        for (size_t i = first; i < last; ++i) {
            const double p = std::exp(scores[i] - maximum);
            sum += p;
            const double rounded = round_point(p, rounding);
            for (size_t c = 0; c < o.size(); ++c) o[c] += rounded * rows.at(i, c);
        }
    }
    for (double& value : o) value /= sum;
    return o;
}

}  // namespace afd::ops::reference
