// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorSpec: what an operator takes and gives, as one record.
//
// The record is the only place where names, dtypes, shapes and ranges are written down, and which
// member of the request each name is: the operator validates its request with it
// (operator_check.h), `afd-op` fills requests by it and prints it, and docs/operators.md is
// generated from it. Constraints that no column can say are sentences in `rules`, enforced by the
// operator itself.
//
// Records are constants; their strings are literals.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "ops/record/request_member.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

class DTypeSet {
  public:
    constexpr DTypeSet(std::initializer_list<DType> dtypes) {
        for (const DType dtype : dtypes) bits_ |= 1U << static_cast<unsigned>(dtype);
    }
    constexpr bool has(DType dtype) const {
        return (bits_ >> static_cast<unsigned>(dtype) & 1U) != 0;
    }

  private:
    uint32_t bits_ = 0;
};

enum class TensorRole : uint8_t {
    kInput,
    kOptionalInput,
    kOutput,
    kOptionalOutput,  // Off: not given, or 0 elements.
    kInPlace,         // Read and written.
    kOptionalInPlace,
};

struct TensorSpec {
    std::string_view name;  // The seed's, in snake_case.
    RequestMember member;
    TensorRole role;
    DTypeSet dtypes;
    // "[N, H]"; several allowed forms are parted by " | ". A dimension is a number, a name, or a
    // sum or product of these without blanks ("N*K", "D+Dr"). A name stands for the same size
    // wherever it occurs; integer attributes are names too. "?" matches any size.
    std::string_view shape;
    std::string_view meaning;
};

struct AttributeSpec {
    std::string_view name;  // The seed's, in snake_case.
    RequestMember member;   // kInt, kFloat, kBool, kInts or kString, whether it is bound or not.
    std::string_view default_value;  // As JSON ("-1", "1e-5", "false", "[]"); empty: required.
    // Integers: the values allowed; empty: those of [least, most].
    std::span<const int64_t> choices;
    int64_t least;
    int64_t most;
    std::string_view meaning;  // With choices: one clause a value, parted by "; ".
    std::span<const std::string_view> words = {};  // Strings: the values allowed.
};

struct OperatorSpec {
    std::string_view name;     // "moe_init_routing_v3"
    std::string_view summary;  // One line: what it is for.
    std::string_view formula;  // One line.
    std::string_view source;   // The document that defines it.
    std::span<const AttributeSpec> attributes;
    std::span<const TensorSpec> tensors;
    std::span<const std::string_view> rules;   // Further constraints, one sentence each.
    std::span<const std::string_view> lifted;  // Limits of one hardware revision that do not hold.
    // What its plain loops (ops/reference) give, compared with the kernels; empty: there are none.
    std::string_view reference = "the same bits, in every numeric class";

    // Null if there is none of this name.
    const AttributeSpec* find_attribute(std::string_view attribute) const;
    const TensorSpec* find_tensor(std::string_view tensor) const;
};

// The record of the operator whose request is a Request.
template <typename Request>
struct RecordOf : OperatorSpec {};

}  // namespace afd::ops
