// SPDX-License-Identifier: Apache-2.0
#include "schedule/row_dtype.h"

namespace afd::schedule {

std::string_view name_of(RowDtype dtype) {
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
