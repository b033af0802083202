// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnWorkerBatchingShape: the dimensions of a request of FfnWorkerBatching, and what it must keep
// to, for both implementations of the operator.

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/status.h"

namespace afd::ops {

struct FfnWorkerBatchingOutput;
struct FfnWorkerBatchingRequest;

// The dimensions of a checked request.
struct FfnWorkerBatchingShape {
    size_t num_sessions;       // A
    size_t num_micro_batches;  // M
    size_t micro_batch_size;   // BS
    size_t num_slots;          // K1
    size_t hidden;             // H
    size_t token_stride;       // HS
    size_t value_bytes;        // H elements of the token dtype.
    bool has_scale;
    size_t num_experts;
    size_t experts_per_layer;
    size_t num_layers;  // 0: ids are unique over layers.

    size_t slots_per_row() const { return micro_batch_size * num_slots; }
    size_t num_rows_max() const { return num_sessions * slots_per_row(); }
};

// Everything but the rows that a scheduler listed. Writes nothing.
Result<FfnWorkerBatchingShape> check_ffn_worker_batching(const FfnWorkerBatchingRequest& request,
                                                         const FfnWorkerBatchingOutput& output);

// need_schedule 0: sessions and micro-batches in range, none listed twice.
// `seen`: scratch of num_sessions · num_micro_batches bytes.
Result<> check_scheduled_rows(const FfnWorkerBatchingShape& shape,
                              std::span<const int32_t> sessions,
                              std::span<const int32_t> micro_batches,
                              uint8_t* seen);

}  // namespace afd::ops
