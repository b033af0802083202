// SPDX-License-Identifier: Apache-2.0

#include "ops/format/numeric_class.h"

#include <array>

namespace afd::ops {
namespace {

constexpr std::array kClasses{
    NumericClass::kPortable, NumericClass::kAvx2, NumericClass::kAvx512, NumericClass::kAvx512Bf16};

struct SupportedClasses {
    std::array<NumericClass, kClasses.size()> classes{};
    size_t count = 0;
};

SupportedClasses find_supported_classes() {
    SupportedClasses found;
    for (const NumericClass numeric_class : kClasses) {
        if (supported(numeric_class)) found.classes[found.count++] = numeric_class;
    }
    return found;
}

}  // namespace

std::string_view name_of(NumericClass numeric_class) {
    switch (numeric_class) {
        case NumericClass::kPortable:
            return "portable";
        case NumericClass::kAvx2:
            return "avx2";
        case NumericClass::kAvx512:
            return "avx512";
        case NumericClass::kAvx512Bf16:
            return "avx512-bf16";
    }
    return "unknown";
}

std::optional<NumericClass> parse_numeric_class(std::string_view name) {
    for (const NumericClass numeric_class : kClasses) {
        if (name_of(numeric_class) == name) return numeric_class;
    }
    return std::nullopt;
}

bool supported(NumericClass numeric_class) {
    switch (numeric_class) {
        case NumericClass::kPortable:
            return true;
#ifdef AFD_OPS_X86
        case NumericClass::kAvx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        case NumericClass::kAvx512:
            return supported(NumericClass::kAvx2) && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq");
        case NumericClass::kAvx512Bf16:
            return supported(NumericClass::kAvx512) && __builtin_cpu_supports("avx512bf16") &&
                   __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
#endif
        default:
            return false;
    }
}

std::span<const NumericClass> supported_numeric_classes() {
    static const SupportedClasses found = find_supported_classes();
    return {found.classes.data(), found.count};
}

NumericClass best_numeric_class() {
    return supported_numeric_classes().back();
}

}  // namespace afd::ops
