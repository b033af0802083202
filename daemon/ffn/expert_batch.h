// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertBatch: the rows of one pass of an FFN worker, sorted by expert key, and where each of them
// came from; and ExpertBatcher, which makes it out of the descriptors that ReadyScan took:
//
//   router = attention   window_batcher.h   FfnWorkerBatching, by the ids of the descriptors
//   router = ffn         ffn_router.h       gate and MoeInitRoutingV3, by the rows themselves

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/experts/grouped_ffn.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "schedule/ready_scan.h"

namespace afd::daemon {

struct ExpertBatch {
    ExpertBatch(size_t rows_max, size_t num_keys, size_t row_elements)
        : x(rows_max * row_elements),
          groups(num_keys + 1),
          session_ids(rows_max),
          micro_batch_ids(rows_max),
          token_ids(rows_max),
          expert_offsets(rows_max) {}

    size_t num_rows = 0;
    size_t num_groups = 0;
    // [num_rows, row_elements]: rows as they were sent (ops/fused_moe/sent_rows.h).
    std::vector<ops::Bf16> x;
    std::vector<ops::ExpertGroup> groups;  // [num_groups], keys ascending; one entry to spare.
    std::vector<int32_t> session_ids;      // [num_rows], and the next three: the result slot.
    std::vector<int32_t> micro_batch_ids;
    std::vector<int32_t> token_ids;
    std::vector<int32_t> expert_offsets;
    std::vector<float> weights;  // router = ffn: [num_rows], travel with the results; else empty.
};

class ExpertBatcher {
  public:
    virtual ~ExpertBatcher() = default;

    // Fills `batch` with the rows that scan.taken() asks of this rank. What sessions wrote is
    // validated by ReadyScan, so nothing can fail. Allocates nothing.
    virtual void gather(const schedule::ReadyScan& scan,
                        ExpertBatch& batch,
                        ops::Parallel& parallel) = 0;
};

}  // namespace afd::daemon
