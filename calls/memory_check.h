// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether the memory of a call is what its operator takes it for: as large as a shape says, aligned
// for what is read from it, of values that its dtype has, and apart from all that is written. No
// operator looks at that itself. How much a call needs, and whether that much is to be had, is
// OperatorCall's matter.
//
// Errors are kInvalidArgument, name the tensor and say what to do. Nothing is written, and of the
// elements only those of bools are read. Tensors are contiguous except where a function says that
// it takes others.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "calls/named_tensor.h"
#include "ops/record/operator_spec.h"
#include "proto/status.h"

namespace afd::calls {

// Nothing if 64 bits do not hold it. An axis of length 0 hides no overflow of the others.
std::optional<uint64_t> bytes_of_shape(const ops::TensorView& view);

std::span<std::byte> bytes_of(const ops::TensorView& view);

// What memory of the record's `tensor` is read as: segments and windows, which are bytes, hold
// int32 flags and lists.
size_t alignment_of(const ops::TensorSpec& tensor, ops::DType dtype);

// Of a tensor that is given, `known` in the record. It need not be contiguous: the operator, which
// judges its shape and dtype later, says so. Errors: a scalar, a shape that is larger than any
// memory, an address that is no multiple of alignment_of(), a bool that is neither 0 nor 1.
Result<> check_given_memory(const ops::OperatorSpec& spec,
                            const ops::TensorSpec& known,
                            const NamedTensor& tensor);

// `windows`: those of all workers under one name, which are written. Errors: two share memory.
Result<> check_windows_separate(const ops::OperatorSpec& spec,
                                std::string_view name,
                                std::span<const std::span<std::byte>> windows);

// Errors: one of `in_place` shares memory with one of `tensors` that has another name, unless both
// are segments or contexts, which may lie in one another. REQUIRES: the names are the record's own
// text.
Result<> check_in_place_separate(const ops::OperatorSpec& spec,
                                 std::span<const NamedTensor> in_place,
                                 std::span<const NamedTensor> tensors);

// Of `outputs` in `memory`, in their order. Errors: an address that is no multiple of
// alignment_of(), memory that one shares with one of `tensors` or with another output. REQUIRES: as
// many pointers as outputs.
Result<> check_memory_of_outputs(const ops::OperatorSpec& spec,
                                 std::span<const NamedTensor> tensors,
                                 std::span<const NamedTensor> outputs,
                                 std::span<void* const> memory);

}  // namespace afd::calls
