// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowBatcher: a pass of rows that the attention workers routed. The operator FfnWorkerBatching
// gathers the rows straight from the window. bf16 and int8 rows are its token dtypes 1 and 2, whose
// scales it takes apart. fp8 rows have a scale for each block, which is none of its dtypes: they
// pass as plain words; so do int8 rows with checksums, which are of a row as it was sent. Its
// fp16 (0) is not sent by anybody: a bf16 row in fp16 has the same bytes, and loses what fp16's
// exponent does not reach.
//
// Its context and the scheduler's output buffers are the batcher's own, not those of the control
// segment: what others could write there is no input of a pass.

#include <cstdint>
#include <vector>

#include "daemon/ffn/expert_batch.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/tensor/workspace.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class WindowBatcher final : public ExpertBatcher {
  public:
    // The transport outlives the object. num_keys = num_layers · local experts of a layer; rows of
    // `hidden` values were sent as `dtype`. `takes_apart`: as that of the batches (ExpertBatch).
    WindowBatcher(schedule::ReturnTransport& transport,
                  size_t num_keys,
                  size_t num_layers,
                  schedule::RowDtype dtype,
                  size_t hidden,
                  bool takes_apart = true);

    void gather(const schedule::ReadyScan& scan,
                ExpertBatch& batch,
                ops::Parallel& parallel) override;

    // The request points into the object.
    WindowBatcher(const WindowBatcher&) = delete;
    WindowBatcher& operator=(const WindowBatcher&) = delete;

  private:
    void list(const schedule::ReadyScan& scan);

    const size_t num_sessions_;
    schedule::ScheduleContext context_;
    // Layers [A], sessions [A], micro-batches [A], expert ids [A][BS * K1].
    std::vector<int32_t> lists_;
    ops::FfnWorkerBatchingRequest request_;
    ops::Workspace workspace_;
};

}  // namespace afd::daemon
