// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowBatcher: a pass of rows that the attention workers routed. The operator FfnWorkerBatching
// reads the scheduler's output buffers and gathers the rows straight from the window.

#include "daemon/ffn/expert_batch.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/tensor/workspace.h"
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

  private:
    ops::FfnWorkerBatchingRequest request_;
    ops::Workspace workspace_;
};

}  // namespace afd::daemon
