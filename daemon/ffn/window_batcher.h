// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowBatcher: a pass of rows that the attention workers routed. The operator FfnWorkerBatching
// gathers the rows straight from the window.
//
// Its context and the scheduler's output buffers are the batcher's own, not those of the control
// segment: what others could write there is no input of a pass.

#include <cstdint>
#include <vector>

#include "daemon/ffn/expert_batch.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/tensor/workspace.h"
#include "schedule/schedule_context.h"
#include "schedule/transport.h"

namespace afd::daemon {

class WindowBatcher final : public ExpertBatcher {
  public:
    // The transport outlives the object. num_keys = num_layers · local experts of a layer;
    // row_elements: of a row as it was sent, in units of Bf16.
    WindowBatcher(schedule::ReturnTransport& transport,
                  size_t num_keys,
                  size_t num_layers,
                  size_t row_elements);

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
