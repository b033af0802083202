// SPDX-License-Identifier: Apache-2.0

#include "ops/format/weight_format.h"

namespace afd::ops {

std::string_view name_of(WeightFormat format) {
    switch (format) {
        case WeightFormat::kBf16:
            return "bf16";
        case WeightFormat::kInt8:
            return "int8";
        case WeightFormat::kInt4Group32:
            return "int4-g32";
        case WeightFormat::kInt4Group64:
            return "int4-g64";
        case WeightFormat::kInt4Group32Fp16:
            return "int4-g32-fp16";
        case WeightFormat::kInt4Group64Fp16:
            return "int4-g64-fp16";
        case WeightFormat::kFp8Block128:
            return "fp8-b128";
        case WeightFormat::kMxfp4:
            return "mxfp4";
        case WeightFormat::kInt4Group32Zero:
            return "int4-g32-zero";
        case WeightFormat::kInt4Group64Zero:
            return "int4-g64-zero";
        case WeightFormat::kInt4Group32Fp16Zero:
            return "int4-g32-fp16-zero";
        case WeightFormat::kInt4Group64Fp16Zero:
            return "int4-g64-fp16-zero";
    }
    return "unknown";
}

std::optional<WeightFormat> parse_weight_format(std::string_view name) {
    for (const WeightFormat format : kWeightFormats) {
        if (name_of(format) == name) return format;
    }
    return std::nullopt;
}

bool values_in_range(const Int4Weight& weight) {
    bool has_lowest = false;
    for (size_t n = 0; n < weight.num_outputs(); ++n) {
        // No early end: good weights are read to the end anyway.
        for (size_t k = 0; k < weight.depth(); ++k) has_lowest |= weight.value(n, k) == -8;
    }
    return !has_lowest;
}

}  // namespace afd::ops
