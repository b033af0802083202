// SPDX-License-Identifier: Apache-2.0
#pragma once

// ArrivedSeals: whether the rows of a pass arrived as they were sent (row_checksums = true).
//
// The batch has private copies of the rows; the seals are read where they arrived. A row that is
// not intact is computed like the others, since nobody waits for it less, and its result is sealed
// as computed from a bad input (schedule/layout/row_checksum.h).

#include <cstdint>
#include <vector>

#include "daemon/ffn/expert_batch.h"
#include "daemon/program/log_limit.h"
#include "ops/tensor/parallel.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class ArrivedSeals {
  public:
    // `sent_bytes`: of a row without its seal. The transport outlives the object.
    ArrivedSeals(const schedule::ReturnTransport& transport, size_t sent_bytes, size_t rows_max);

    // Looks at every row of the batch. Allocates nothing, unless one is corrupted: the first is
    // logged, with the worker that it came from, at most one in a while (LogLimit).
    void look(const ExpertBatch& batch, ops::Parallel& parallel);

    // Whether row i of that batch is as it was sent.
    bool is_intact(size_t i) const { return intact_[i] != 0; }

  private:
    void report(const ExpertBatch& batch);

    const schedule::ReturnTransport& transport_;
    const size_t sent_bytes_;
    std::vector<uint8_t> intact_;  // [rows_max]; bytes: several threads write neighbours.
    LogLimit warnings_;
};

}  // namespace afd::daemon
