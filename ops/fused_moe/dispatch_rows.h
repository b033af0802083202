// SPDX-License-Identifier: Apache-2.0
#pragma once

// DispatchRows: the rows of a micro-batch as experts of this process get them: the caller's own,
// quantised to int8, or rounded to what fp8 keeps of them; once for every token, however many
// experts it goes to. What goes to other processes: ops/fused_moe/sent_rows.h.

#include <cstddef>
#include <cstdint>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/stage_profile.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

class DispatchRows {
  public:
    // Takes room for `num_tokens` rows of `hidden` values, unless they stay as they are.
    DispatchRows(RowDtype dtype, size_t hidden, size_t num_tokens, WorkspaceCursor& cursor);
    static Capacity memory(RowDtype dtype, size_t hidden, size_t num_tokens);

    // The result lives until the next call, and no longer than x.
    ActivationRows prepare(Rows<const Bf16> x, Parallel& parallel, StageProfile* profile);

  private:
    void convert(const Bf16* x, size_t row);

    RowDtype dtype_;
    size_t hidden_;
    int8_t* values_ = nullptr;  // int8: [num_tokens, hidden]
    float* scales_ = nullptr;   // int8: [num_tokens]
    Bf16* rounded_ = nullptr;   // fp8: [num_tokens, hidden]
};

}  // namespace afd::ops
