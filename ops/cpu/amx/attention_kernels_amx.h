// SPDX-License-Identifier: Apache-2.0
#pragma once

// The entries of a table of class amx that attend with tiles. Compiled into
// ops/cpu/amx/kernels_amx.cc and tests only, whose tables differ in nothing but the unit.

#include "ops/cpu/amx/attend_spans_amx.h"
#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

template <typename Unit>
void set_attention_kernels(Kernels& table) {
    table.key_pair_heads = 0;
    table.begin_heads = begin_amx_heads;
    table.attend_block = attend_amx_block<Unit>;
    table.attend_quantised = nullptr;
    table.quantised_heads_max = {};
    table.attend_spans = attend_amx_spans<Unit>;
    table.finish_heads = finish_amx_heads;
}

}  // namespace
}  // namespace afd::ops::cpu
