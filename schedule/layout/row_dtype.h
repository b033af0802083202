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

constexpr std::string_view name_of(RowDtype dtype) {
    switch (dtype) {
        case RowDtype::kBf16:
            return "bf16";
        case RowDtype::kInt8:
            return "int8";
        case RowDtype::kFp8:
            return "fp8";
    }
    return "unknown";
}

}  // namespace afd::schedule
