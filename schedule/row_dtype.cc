// SPDX-License-Identifier: Apache-2.0
#include "schedule/row_dtype.h"

#include <string>

namespace afd::schedule {

std::string_view row_dtype_name(RowDtype dtype) {
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

Result<RowDtype> parse_row_dtype(std::string_view name) {
    for (const auto dtype : {RowDtype::kBf16, RowDtype::kInt8, RowDtype::kFp8}) {
        if (name == row_dtype_name(dtype)) return dtype;
    }
    return Error{Code::kInvalidArgument,
                 "the rows' dtype is '" + std::string(name) + "'; allowed are bf16, int8 and fp8"};
}

}  // namespace afd::schedule
