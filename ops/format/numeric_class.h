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
//                 int4 and mxfp4 weights: such a chain for each group, and
//                 sum = fma(a, chain, sum). Where the scale of the group has at most five
//                 significant bits, as all of mxfp4 do, the chain is of x · q and a is the scale
//                 (q · scale is exact in bf16: the same product, summed in another order); else the
//                 chain is of x · ((q · scale) →bf16) and a is 1. int4 weights with zero points are
//                 multiplied as bf16 ones, as in every class.
//   amx           tdpbf16ps: in steps of 16 pairs (the last one shorter), an fp32 chain of fused
//                 multiply-adds over the first elements of the pairs and one over the second ones,
//                 both from 0, then sum = sum + (first + second); odd K padded with zero. Denormal
//                 operands and results of these are zeros. int4 weights are multiplied as bf16
//                 ones, mxfp4 too.
// fp8 weights: in every class the sum p over each block of 128 elements along K, from 0, in the
// class's order for bf16 (the values are bf16 values), then sum = sum + scale · p, blocks
// ascending, from 0: in portable the product is rounded before it is added, in the others the two
// are one fused operation.
// Attention: a score is a product along the latent and then the rotated part (or along a head), and
// its output one along the positions of a block, both as above but for the scores of portable, avx2
// and avx512, which have 16 partial sums (ops/attention/mla_attention.h).
// The weights of the softmax, rounded to bf16: below 2^-126 they are zero in avx512-bf16 and amx.
// Everything else (norms, exp, silu, routing, combine, products with int8 weights or int8 rows) is
// identical in all classes.
//
// The bits of amx need no AMX: a processor without it computes them with ordinary multiply-adds, so
// that different machines can serve in one class, but slowly. Such a class is supported and not
// native, and not the default.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace afd::ops {

enum class NumericClass : uint8_t {
    kPortable = 0,
    kAvx2 = 1,
    kAvx512Bf16 = 2,
    kAvx512 = 3,
    kAmx = 4
};

// Raised whenever a change of ours may change a bit of a result in any class.
inline constexpr uint32_t kKernelRevision = 4;

// Whether the class's products of bf16 numbers take operands below 2^-126 as zero, and make zero of
// such a sum: the instructions do, whatever the processor's mode is.
constexpr bool takes_subnormals_as_zero(NumericClass numeric_class) {
    return numeric_class == NumericClass::kAvx512Bf16 || numeric_class == NumericClass::kAmx;
}

// Elements of depth of one column that stand side by side in a bf16 panel: 2 where the class
// multiplies pairs, otherwise 1. Part of the packed layout (ops/format/packed_shape.h).
size_t bf16_interleave(NumericClass numeric_class);

// "portable", "avx2", "avx512", "avx512-bf16", "amx".
std::string_view name_of(NumericClass numeric_class);

// The class of that name, or nothing.
std::optional<NumericClass> parse_numeric_class(std::string_view name);

// All of them, whether or not this processor can run them: oldest instructions first, which is
// slowest first where they are native, but for the exception of best_numeric_class().
std::span<const NumericClass> numeric_classes();

// Whether this processor and operating system can run it.
bool supported(NumericClass numeric_class);

// Whether it is supported by the instructions that it is made for.
bool is_native(NumericClass numeric_class);

// The classes that this processor supports, in the order of numeric_classes(); never empty.
std::span<const NumericClass> supported_numeric_classes();

// The native one with the newest instructions.
NumericClass newest_numeric_class();

// The fastest native one: the newest, but avx512 instead of avx512-bf16 on a processor of Intel's.
// There vdpbf16ps takes the place of four fused multiply-adds on 16 lanes and does the work of two.
// It depends on what the processor is, not on a measurement: every process and every start have the
// same bits.
NumericClass best_numeric_class();

}  // namespace afd::ops
