// SPDX-License-Identifier: Apache-2.0

#include "ops/format/numeric_class.h"

#ifdef AFD_OPS_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>

#include "ops/format/amx_support.h"

namespace afd::ops {
namespace {

bool has_nothing_special() {
    return true;
}

#ifdef AFD_OPS_X86
// Clang 14 has no name for it in __builtin_cpu_supports().
bool has_f16c() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_bf16() {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}
bool has_amx() {
    return has_avx512_bf16() && amx_support().is_offered;
}
bool is_of_intel() {
    return __builtin_cpu_is("intel");
}
#else
constexpr bool is_of_intel() {
    return false;
}
constexpr bool (*has_avx2)() = nullptr;
constexpr bool (*has_avx512)() = nullptr;
constexpr bool (*has_avx512_bf16)() = nullptr;
constexpr bool (*has_amx)() = nullptr;
#endif

// All that other code asks about a class; its kernels are in ops/cpu/.
struct Traits {
    NumericClass numeric_class;
    std::string_view name;
    size_t bf16_interleave;
    bool (*is_native)();       // Null: not part of this build.
    bool is_portable = false;  // Supported where it is not native, too.
};

// Oldest instructions first.
constexpr Traits kClasses[] = {
    {NumericClass::kPortable, "portable", 1, has_nothing_special},
    {NumericClass::kAvx2, "avx2", 1, has_avx2},
    {NumericClass::kAvx512, "avx512", 1, has_avx512},
    {NumericClass::kAvx512Bf16, "avx512-bf16", 2, has_avx512_bf16},
    {NumericClass::kAmx, "amx", 2, has_amx, true},
};

// Null where the value is of no class: it may have come from the header of a file or a segment.
const Traits* find(NumericClass numeric_class) {
    const auto* const found = std::find_if(
        std::begin(kClasses), std::end(kClasses), [numeric_class](const Traits& traits) {
            return traits.numeric_class == numeric_class;
        });
    return found == std::end(kClasses) ? nullptr : found;
}

using Classes = std::array<NumericClass, std::size(kClasses)>;

constexpr Classes kAllClasses = [] {
    Classes classes{};
    std::transform(
        std::begin(kClasses), std::end(kClasses), classes.begin(), [](const Traits& traits) {
            return traits.numeric_class;
        });
    return classes;
}();

// What this processor offers. Asked once: operators ask for each row, and CPUID leaves a virtual
// machine, which takes microseconds.
class Offer {
  public:
    bool is_native(const Traits& traits) const { return is_native_[&traits - kClasses]; }
    std::span<const NumericClass> supported() const { return {supported_.data(), count_}; }
    NumericClass newest() const { return newest_; }
    NumericClass best() const { return best_; }

  private:
    Offer() {
        for (const Traits& traits : kClasses) {
            const bool is_native = traits.is_native != nullptr && traits.is_native();
            is_native_[&traits - kClasses] = is_native;
            if (is_native) newest_ = traits.numeric_class;
            if (is_native || traits.is_portable) supported_[count_++] = traits.numeric_class;
        }
        const bool has_slow_pairs = newest_ == NumericClass::kAvx512Bf16 && is_of_intel();
        best_ = has_slow_pairs ? NumericClass::kAvx512 : newest_;
    }
    friend const Offer& offer();

    std::array<bool, std::size(kClasses)> is_native_{};
    Classes supported_{};
    size_t count_ = 0;
    NumericClass newest_ = NumericClass::kPortable;
    NumericClass best_ = NumericClass::kPortable;
};

const Offer& offer() {
    static const Offer kOffer;
    return kOffer;
}

}  // namespace

size_t bf16_interleave(NumericClass numeric_class) {
    const Traits* traits = find(numeric_class);
    return traits == nullptr ? 1 : traits->bf16_interleave;
}

std::string_view name_of(NumericClass numeric_class) {
    const Traits* traits = find(numeric_class);
    return traits == nullptr ? "unknown" : traits->name;
}

std::optional<NumericClass> parse_numeric_class(std::string_view name) {
    for (const Traits& traits : kClasses) {
        if (traits.name == name) return traits.numeric_class;
    }
    return std::nullopt;
}

std::span<const NumericClass> numeric_classes() {
    return kAllClasses;
}

bool supported(NumericClass numeric_class) {
    const Traits* traits = find(numeric_class);
    return traits != nullptr && (traits->is_portable || is_native(numeric_class));
}

bool is_native(NumericClass numeric_class) {
    const Traits* traits = find(numeric_class);
    return traits != nullptr && offer().is_native(*traits);
}

std::span<const NumericClass> supported_numeric_classes() {
    return offer().supported();
}

NumericClass newest_numeric_class() {
    return offer().newest();
}

NumericClass best_numeric_class() {
    return offer().best();
}

}  // namespace afd::ops
