// SPDX-License-Identifier: Apache-2.0
#pragma once

// RowDtype: in which form token rows travel to the FFN workers (docs/wire.md). The same for all
// processes of an instance; it stands in every segment header. Results travel as bf16.

#include <cstdint>
#include <string_view>

namespace afd::schedule {

enum class RowDtype : uint32_t {
    kBf16 = 0,
    kInt8 = 1,  // One fp32 scale a row.
    kFp8 = 2,   // e4m3, one fp32 scale for each 128 values.
};

// "bf16", "int8", "fp8".
std::string_view name_of(RowDtype dtype);

}  // namespace afd::schedule
