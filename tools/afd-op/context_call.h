// SPDX-License-Identifier: Apache-2.0
#pragma once

// What calls of operators on a ScheduleContext share: its 1024 bytes are a tensor, the segments
// that its buffers point into are tensors, and buffer fields are byte offsets into these.

#include <cstddef>
#include <span>

#include "ops/tensor/tensor_view.h"
#include "proto/status.h"
#include "schedule/schedule_context.h"
#include "tools/afd-op/operator_call.h"

namespace afd::tools {

// The tensor schedule_context, copied: as an output where the operator writes it.
// Errors: kInvalidArgument, the operator's words for what was given instead.
Result<schedule::ScheduleContext*> context_in_place(OperatorCall& call,
                                                    const ops::OperatorSpec& spec);
Result<const schedule::ScheduleContext*> context_input(const OperatorCall& call,
                                                       const ops::OperatorSpec& spec);

// For operators that have no reference of their own.
Result<> refuse_reference(const OperatorCall& call, const ops::OperatorSpec& spec);

std::span<const std::byte> bytes_of(const ops::ConstTensorView& view);

template <typename T>
std::span<T> elements_of(const ops::TensorView& view) {
    return {static_cast<T*>(view.data), view.num_elements()};
}

}  // namespace afd::tools
