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
#include "ops/fused_moe/sent_rows.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "schedule/dispatch/ready_scan.h"
#include "schedule/layout/row_dtype.h"

namespace afd::daemon {

struct ExpertBatch {
    // Rows of `hidden` values that were sent as `dtype`. `takes_apart`: int8 rows are values and
    // scales; otherwise they stay as they were sent.
    ExpertBatch(size_t rows_max,
                size_t num_keys,
                schedule::RowDtype dtype,
                size_t hidden,
                bool takes_apart = true)
        : x(rows_max * ops::sent_row_elements(dtype, hidden)),
          scales(takes_apart && dtype == schedule::RowDtype::kInt8 ? rows_max : 0),
          groups(num_keys + 1),
          session_ids(rows_max),
          micro_batch_ids(rows_max),
          token_ids(rows_max),
          expert_offsets(rows_max) {}

    size_t num_rows = 0;
    size_t num_groups = 0;
    // [num_rows]: rows as they were sent (ops/fused_moe/sent_rows.h); of int8 rows that are taken
    // apart the values alone, [num_rows, hidden] bytes.
    std::vector<ops::Bf16> x;
    std::vector<float> scales;             // int8 taken apart: [num_rows]; else empty.
    std::vector<ops::ExpertGroup> groups;  // [num_groups], keys ascending; one entry to spare.
    std::vector<int32_t> session_ids;      // [num_rows], and the next three: the result slot.
    std::vector<int32_t> micro_batch_ids;
    std::vector<int32_t> token_ids;
    std::vector<int32_t> expert_offsets;
    // router = ffn and row_checksums: [num_rows], the slots that the rows themselves arrived in.
    // Else empty: a row arrives where its result goes.
    std::vector<int32_t> offered_slots;
    // router = ffn, row_checksums and rows with a rest: [num_rows], copies of the rows as they were
    // sent. Else empty: x has them.
    std::vector<const std::byte*> sent_rows;
    const std::vector<int32_t>& row_slots() const {
        return offered_slots.empty() ? expert_offsets : offered_slots;
    }
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
