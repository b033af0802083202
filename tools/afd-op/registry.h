// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operators that `afd-op` can describe and run. Adding one takes its record (ops/), a function
// from OperatorCall to the operator's request (run_*.cc), and a line in registry.cc.

#include <span>
#include <string_view>

#include "ops/record/operator_spec.h"
#include "proto/status.h"
#include "tools/afd-op/operator_call.h"

namespace afd::tools {

struct RegisteredOperator {
    const ops::OperatorSpec* spec;
    // Fills the call's outputs. Errors: the operator's.
    Result<> (*run)(OperatorCall& call);
};

std::span<const RegisteredOperator> operators();

// Null if there is none of this name.
const RegisteredOperator* find_operator(std::string_view name);

}  // namespace afd::tools
