// SPDX-License-Identifier: Apache-2.0
#pragma once

// Token ids as configuration files write them: one integer or a list of them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::model {

// The ids under `key`, ascending and without repetition; empty if the key is absent or null.
// Errors: kInvalidArgument for anything else and for an id outside [0, vocab_size).
Result<std::vector<uint32_t>> read_token_ids(const nlohmann::json& object,
                                             const char* key,
                                             uint32_t vocab_size,
                                             const std::string& origin);

}  // namespace afd::model
