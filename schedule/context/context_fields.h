// SPDX-License-Identifier: Apache-2.0
#pragma once

// The 1024 bytes of a ScheduleContext field by field, for people: name, place, value, meaning.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/context/schedule_context.h"

namespace afd::schedule {

struct ContextField {
    std::string_view name;  // "ffn.polling_index"; a run of reserved bytes: "control.reserve1".
    uint32_t offset = 0;    // Bytes from the start of the context.
    uint32_t size = 0;      // Bytes.
    std::string value;      // Decimal; of reserved bytes "0", or "not zero".
    std::string_view meaning;
};

// All fields in the order of their places, without a gap: sizes sum up to 1024.
std::vector<ContextField> context_fields(const ScheduleContext& context);

}  // namespace afd::schedule
