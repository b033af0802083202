// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/context_check.h"

#include <string>

namespace afd::ops {
namespace {

std::string is(const char* name, uint64_t value) {
    return std::string(name) + " is " + std::to_string(value) + "; ";
}

}  // namespace

void check_dimension(OperatorCheck& check, const char* name, uint64_t value, uint64_t most) {
    check.require(value >= 1 && value <= most,
                  is(name, value) + "allowed are 1 to " + std::to_string(most));
}

void check_dimensions(OperatorCheck& check, const schedule::ScheduleContext::CommonArea& common) {
    check_dimension(check, "session_num", common.session_num, schedule::kSessionsMax);
    check_dimension(check, "micro_batch_num", common.micro_batch_num, schedule::kMicroBatchesMax);
    check_dimension(check, "micro_batch_size", common.micro_batch_size, INT32_MAX);
    check_dimension(
        check, "selected_expert_num", common.selected_expert_num, schedule::kSelectedExpertsMax);
}

void check_token_size(OperatorCheck& check, const char* name, uint64_t value, uint64_t row_bytes) {
    check.require(value > 0 && value % schedule::kTokenAlignBytes == 0,
                  is(name, value) + "it must be a positive multiple of " +
                      std::to_string(schedule::kTokenAlignBytes));
    check.require(value >= row_bytes,
                  is(name, value) + "a row needs " + std::to_string(row_bytes) + " bytes");
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
    const std::string size_name = std::string(buffer.name) + "_size";
    check.require(!overflows && needed <= buffer.size,
                  is(size_name.c_str(), buffer.size) + "the dimensions need " +
                      (overflows ? "more than 64 bits can say" : std::to_string(needed)));
    uint64_t end = 0;
    const bool is_inside =
        !__builtin_add_overflow(buffer.offset, buffer.size, &end) && end <= segment_bytes;
    check.require(is_inside,
                  is(buffer.name, buffer.offset) + "with its " + std::to_string(buffer.size) +
                      " bytes it ends beyond the " + std::to_string(segment_bytes) + " of " +
                      segment);
    check.require(buffer.offset % buffer.alignment == 0,
                  is(buffer.name, buffer.offset) + "it must be a multiple of " +
                      std::to_string(buffer.alignment));
}

}  // namespace afd::ops
