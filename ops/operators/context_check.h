// SPDX-License-Identifier: Apache-2.0
#pragma once

// The checks of ScheduleContext fields that operators on windows share. A failure goes to the
// operator's OperatorCheck; nothing is read through a field before it passed.

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ops/record/operator_check.h"
#include "schedule/context/schedule_context.h"

namespace afd::ops {

// 1 <= value <= most.
void check_dimension(OperatorCheck& check, const char* name, uint64_t value, uint64_t most);

// The dimensions of every window: session_num, micro_batch_num, micro_batch_size and
// selected_expert_num.
void check_dimensions(OperatorCheck& check, const schedule::ScheduleContext::CommonArea& common);

// K is 1 to kTopKMax, and selected_expert_num at most kSharedExpertsMax more.
void check_selected_experts(OperatorCheck& check,
                            const schedule::ScheduleContext::CommonArea& common,
                            size_t top_k);

// A positive multiple of 512 that holds a row of `row_bytes`.
void check_token_size(OperatorCheck& check, const char* name, uint64_t value, uint64_t row_bytes);

struct ContextBuffer {
    const char* name;
    uint64_t offset;  // The *_buf field.
    uint64_t size;    // The *_buf_size field.
    uint64_t alignment;
};

// `size` holds the product of `factors`, and lies inside the `segment_bytes` of `segment`.
void check_buffer(OperatorCheck& check,
                  const ContextBuffer& buffer,
                  std::initializer_list<uint64_t> factors,
                  uint64_t segment_bytes,
                  const char* segment);

}  // namespace afd::ops
