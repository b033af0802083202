// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operators that can be called by name: by afd-op, through afd_ops.h, from Python. Adding one
// takes its record (ops/), a function that makes a call ready (prepare_operators.h), and a line in
// registry.cc.

#include <span>
#include <string_view>

#include "calls/operator_call.h"

namespace afd::calls {

std::span<const RegisteredOperator> operators();

// Null if there is none of this name.
const RegisteredOperator* find_operator(std::string_view name);

// kNotFound, with the name that may have been meant.
Error no_such_operator(std::string_view name);

// Errors: kInvalidArgument: no class of this name, or none that this processor can run.
Result<ops::NumericClass> numeric_class_of(std::string_view name);

// Sets the class of that name in the options, and with it what the reference does with subnormals.
// Errors: as numeric_class_of.
Result<> set_numeric_class(std::string_view name, CallOptions& options);

}  // namespace afd::calls
