// SPDX-License-Identifier: Apache-2.0
#pragma once

// NumericClass: which arithmetic the linear and attention kernels use.
//
// "Same bits" holds within one class (and one machine type); two processes that share windows must
// agree on it, so it stands in the segment headers with kKernelRevision. What a class fixes is the
// order and the rounding of the products of one output along the depth K:
//   portable      fp32 multiply, then fp32 add, k = 0 ... K-1.
//   avx2          fp32 fused multiply-add, k = 0 ... K-1.
//   avx512        as avx2, with the same bits.
//   avx512-bf16   vdpbf16ps over the pairs (0,1), (2,3), ...: one chain, odd K padded with zero.
//                 int4 weights: such a chain for each group, and sum = fma(a, chain, sum). Where
//                 the scale of the group has at most five significant bits, the chain is of x · q
//                 and a is the scale (q · scale is exact in bf16: the same product, summed in
//                 another order); else the chain is of x · ((q · scale) →bf16) and a is 1.
// fp8 weights: in every class the sum p over each block of 128 elements along K, from 0, in the
// class's order for bf16 (the values are bf16 values), then sum = sum + scale · p, blocks
// ascending, from 0: in portable the product is rounded before it is added, in the others the two
// are one fused operation.
// Everything else (norms, softmax, exp, silu, routing, combine, products with int8 weights) is
// identical in all classes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace afd::ops {

enum class NumericClass : uint8_t { kPortable = 0, kAvx2 = 1, kAvx512Bf16 = 2, kAvx512 = 3 };

// Raised whenever a change of ours may change a bit of a result in any class.
inline constexpr uint32_t kKernelRevision = 2;

// Elements of depth of one column that stand side by side in a bf16 panel: 2 where the class
// multiplies pairs, otherwise 1. Part of the packed layout (ops/format/packed_shape.h).
size_t bf16_interleave(NumericClass numeric_class);

// "portable", "avx2", "avx512", "avx512-bf16".
std::string_view name_of(NumericClass numeric_class);

// The class of that name, or nothing.
std::optional<NumericClass> parse_numeric_class(std::string_view name);

// All of them, slowest first, whether or not this processor can run them.
std::span<const NumericClass> numeric_classes();

// Whether this processor and operating system can run it.
bool supported(NumericClass numeric_class);

// The classes that this processor supports, slowest first; never empty.
std::span<const NumericClass> supported_numeric_classes();

// The fastest supported one.
NumericClass best_numeric_class();

}  // namespace afd::ops
