// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoePlan: bytes that a composition reserves, before there are weights or processes: for the worst
// case, and for the part of it that config.row_fraction asks for. compose() and the parts reserve
// by the same formulas (driver_memory.h, the parts' memory()).

#include <cstddef>

#include "ops/format/int4_rows.h"
#include "ops/fused_moe/plan/feature_matrix.h"

namespace afd::ops {

struct MoeLimits {
    FusedMoeConfig config;    // row_fraction and overflow are those of the bounded figure.
    size_t intermediate = 0;  // Of the widest expert.
    size_t num_layers = 1;
    Int4Rows int4_rows = Int4Rows::kBf16;  // That experts with int4 weights multiply.
    unsigned num_threads = 1;
    size_t block_tokens = 1024;  // Of a two-phase round (afdd's two_phase_block).
};

struct MoeMemory {
    Capacity dispatch;  // The PrepareFinalize's rows, and where they are.
    Capacity driver;    // Workspaces of the experts, and their rows.

    Capacity total() const { return dispatch + driver; }
};

struct MoePlan {
    MoeMemory worst_case;
    MoeMemory bounded;
    // Windows, or the segments of a two-phase round, of one session and all ranks; 0 within one
    // process.
    Capacity shared_memory;
    // Rows that one of config.num_ranks ranks gets of one micro-batch if all go there, and on
    // average; what a part between processes has to hold in a window, or in a segment.
    Capacity rank_rows_max;
    Capacity rank_rows_mean;
};

// Packed weights of the experts that the fullest of config.num_ranks ranks holds, shared ones among
// them, in all layers, each limits.intermediate wide and in config.quantisation (int4: in groups of
// 32), for the processor's best numeric class. REQUIRES: check(limits).ok().
Capacity rank_weight_bytes(const MoeLimits& limits);

// What no pair serves. Errors: those of check(limits.config); kInvalidArgument: intermediate or
// num_layers out of range, rows between the two products beyond what a process could address.
Result<> check(const MoeLimits& limits);

// A part between processes has a `dispatch` of 0: its rows are in shared_memory. A shared
// stage is planned as one of the grouped parts.
// Errors: those of check(limits) and check_composition(), and sizes whose bytes overflow. No memory
// is taken for experts, however many there are.
Result<MoePlan> plan_moe(const MoePair& pair, const MoeLimits& limits);

}  // namespace afd::ops
