// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a model and the numbers of an instance to what its segments are made of. afdd creates the
// segments from it and every worker attaches with it, so both call the same functions; what they
// computed is compared through the segment headers.

#include <cstdint>
#include <optional>

#include "daemon/config/choices.h"
#include "model/checkpoint/config.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/layout/geometry.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/shared_memory/worker_segments.h"

namespace afd::daemon {

// The form in which rows travel; nothing wanted: bf16.
// Errors: kInvalidArgument: int8 for a model whose experts are not int8.
Result<schedule::RowDtype> choose_dispatch_dtype(std::optional<schedule::RowDtype> wanted,
                                                 const model::ModelConfig& model);

// A row in an FFN window is as ops/fused_moe/sent_rows.h says, in an attention window `hidden` bf16
// values, both rounded up to whole 512 bytes; with router = ffn a row of an attention window also
// holds its routing weight, and one of an FFN window its rest (rows_have_rest); with row_checksums
// either has its seal behind that. K1 is top_k and, if FFN workers compute the shared experts, one
// slot for them; a model without MoE layers has the slot of its dense MLP.
// Errors: kInvalidArgument (schedule::validate; an unknown router or dtype: kDataLoss).
Result<schedule::Geometry> make_geometry(const model::ModelConfig& model,
                                         const control::Geometry& instance);

// Workers that talk over messages have their windows each to itself.
inline schedule::Windows windows_of(Transport transport) {
    return transport == Transport::kUcx ? schedule::Windows::kPrivate : schedule::Windows::kShared;
}

// Whether rows in FFN windows bring what their rounding left: whoever routes by them sees what an
// attention worker would have seen.
bool rows_have_rest(const model::ModelConfig& model, schedule::RouterPlacement router);

// Slots of a token that are dispatched for shared experts: those of the model, or 0 where attention
// workers compute them while they wait for FFN workers. Colocated they are slots like the others.
uint32_t dispatched_shared_slots(const model::ModelConfig& model,
                                 const control::Geometry& instance);

// What a session's call can have in a two-phase round at most.
schedule::TwoPhaseCall two_phase_call(const control::Welcome& welcome,
                                      const schedule::Geometry& geometry);

// Bytes of a row of a two-phase round, each way: as it is sent, and `hidden` bf16 values back. With
// row_checksums also of its seal, which a sent row has behind it; the seals of a block of results
// stand behind all of its rows (two_phase_seals_offset).
schedule::TwoPhaseRowBytes two_phase_row_bytes(schedule::RowDtype dtype,
                                               size_t hidden,
                                               bool row_checksums = false);

// Where the seals of a block of results begin, counted from the block.
inline uint64_t two_phase_seals_offset(uint64_t block_rows_max, size_t hidden) {
    return block_rows_max * hidden * sizeof(ops::Bf16);
}

// The numeric class as it stands in headers and in the status: instruction set, kernel revision,
// to what rows are rounded on their way (int8 rows lose nothing that int8 experts would keep) and,
// if the model is quantised, how: "avx2/r4/bf16", "avx2/r4/bf16 (experts int8)", "avx2/r4/fp8".
schedule::InstanceIdentity make_identity(uint64_t instance_id,
                                         const model::ModelFiles& model,
                                         ops::NumericClass numeric_class,
                                         schedule::RouterPlacement router,
                                         schedule::RowDtype dispatch_dtype);

}  // namespace afd::daemon
