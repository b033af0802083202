// SPDX-License-Identifier: Apache-2.0
#pragma once

// The legal compositions of a fused MoE within one process, over the models of the test matrix.

#include <cstddef>
#include <string>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/plan/moe_plan.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops::test {

inline const MatrixModel& matrix_model(ExpertQuantisation quantisation) {
    static const MatrixModel models[] = {MatrixModel(ExpertQuantisation::kNone),
                                         MatrixModel(ExpertQuantisation::kInt8),
                                         MatrixModel(ExpertQuantisation::kInt4),
                                         MatrixModel(ExpertQuantisation::kFp8)};
    return models[static_cast<size_t>(quantisation)];
}

// For what a test says of it.
inline std::string name_of_composition(const MoePair& pair, const FusedMoeConfig& config) {
    return std::string(pair.prepare_finalize->capability->name) + " + " +
           std::string(pair.experts->capability->name) + " " + std::to_string(config.row_fraction) +
           " " + std::string(name_of(config.overflow)) + " chunks of " +
           std::to_string(config.max_chunk_tokens);
}

// Calls body(pair, config) for the legal compositions within one process: every weight format,
// whole and chunked, bf16, int8 and fp8 rows, weights on the input, three fractions and three
// policies.
template <typename Body>
size_t for_each_composition(const Body& body) {
    size_t count = 0;
    for (const MoePair& pair : moe_pairs()) {
        if (pair.prepare_finalize->make == nullptr) continue;
        for (const MoeFeature feature : {MoeFeature::kPlain,
                                         MoeFeature::kChunked,
                                         MoeFeature::kInt8Dispatch,
                                         MoeFeature::kFp8Dispatch,
                                         MoeFeature::kWeightOnInput}) {
            for (const double fraction : {1.0, 0.3, 0.01}) {
                for (const RowOverflow overflow :
                     {RowOverflow::kError, RowOverflow::kBackpressure, RowOverflow::kChunk}) {
                    FusedMoeConfig config = with_feature(matrix_config(pair.quantisation), feature);
                    config.num_micro_batches = 3;
                    config.num_kept_layouts = 1;
                    config.row_fraction = fraction;
                    config.overflow = overflow;
                    if (!check_composition(*pair.prepare_finalize, *pair.experts, config).ok()) {
                        continue;
                    }
                    body(pair, config);
                    ++count;
                }
            }
        }
    }
    return count;
}

}  // namespace afd::ops::test
