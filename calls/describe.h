// SPDX-License-Identifier: Apache-2.0
#pragma once

// An operator's record as text for a terminal, and as JSON for programs (the docs generator).

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/record/operator_spec.h"

namespace afd::calls {

std::string describe_as_text(const ops::OperatorSpec& spec);
nlohmann::ordered_json describe_as_json(const ops::OperatorSpec& spec);

}  // namespace afd::calls
