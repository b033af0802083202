// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/context_check.h"

#include <string>

#include "ops/format/expert_slots.h"
#include "schedule/layout/geometry.h"

namespace afd::ops {

void check_dimension(OperatorCheck& check, const char* name, uint64_t value, uint64_t most) {
    check.require(
        value >= 1 && value <= most, "{} is {}; allowed are 1 to {}", with(name, value, most));
}

void check_dimensions(OperatorCheck& check, const schedule::ScheduleContext::CommonArea& common) {
    check_dimension(check, "session_num", common.session_num, schedule::kSessionsMax);
    check_dimension(check, "micro_batch_num", common.micro_batch_num, schedule::kMicroBatchesMax);
    check_dimension(check, "micro_batch_size", common.micro_batch_size, INT32_MAX);
    check.require(common.schedule_mode >= 0 && common.schedule_mode <= 2,
                  "schedule_mode is {}; allowed are 0, 1, 2",
                  with(common.schedule_mode));
    check_dimension(
        check, "selected_expert_num", common.selected_expert_num, schedule::kSelectedExpertsMax);
}

void check_selected_experts(OperatorCheck& check,
                            const schedule::ScheduleContext::CommonArea& common,
                            size_t top_k) {
    static_assert(schedule::kSelectedExpertsMax == kExpertSlotsMax, "windows hold every slot");
    check_dimension(check, "K", top_k, kTopKMax);
    const size_t most = top_k + kSharedExpertsMax;
    check.require(common.selected_expert_num >= top_k && common.selected_expert_num <= most,
                  "selected_expert_num is {}; with K = {} allowed are {} to {}",
                  with(common.selected_expert_num, top_k, top_k, most));
}

void check_token_size(OperatorCheck& check, const char* name, uint64_t value, uint64_t row_bytes) {
    check.require(value > 0 && value % schedule::kTokenAlignBytes == 0,
                  "{} is {}; it must be a positive multiple of {}",
                  with(name, value, schedule::kTokenAlignBytes));
    check.require(
        value >= row_bytes, "{} is {}; a row needs {} bytes", with(name, value, row_bytes));
}

void check_buffer(OperatorCheck& check,
                  const ContextBuffer& buffer,
                  std::initializer_list<uint64_t> factors,
                  uint64_t segment_bytes,
                  const char* segment) {
    uint64_t needed = 1;
    bool overflows = false;
    for (const uint64_t factor : factors) {
        // Dimensions are another process's numbers: a product that wraps would fit into any buffer.
        overflows = overflows || __builtin_mul_overflow(needed, factor, &needed);
    }
    const std::string wanted = overflows ? "more than 64 bits can say" : std::to_string(needed);
    check.require(!overflows && needed <= buffer.size,
                  "{}_size is {}; the dimensions need {}",
                  with(buffer.name, buffer.size, wanted));
    uint64_t end = 0;
    const bool is_inside =
        !__builtin_add_overflow(buffer.offset, buffer.size, &end) && end <= segment_bytes;
    check.require(is_inside,
                  "{} is {}; with its {} bytes it ends beyond the {} bytes of {}",
                  with(buffer.name, buffer.offset, buffer.size, segment_bytes, segment));
    check.require(buffer.offset % buffer.alignment == 0,
                  "{} is {}; it must be a multiple of {}",
                  with(buffer.name, buffer.offset, buffer.alignment));
}

}  // namespace afd::ops
