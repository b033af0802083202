// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the readers of tokenizer.json look at JSON and what they say about a key that they cannot
// use:
//   DIR/tokenizer.json: normalizer is {"type":"Nmt"}; supported: ...

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/status.h"

namespace afd::model {

// Null for whatever is not there: a chain of look-ups needs no test at each step.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key);

// Empty for what is no string.
std::string json_string(const nlohmann::json& value);

// The value as a message shows it: its start, if it is long.
std::string json_shown(const nlohmann::json& value);

// `key` has a value that is valid and not served. Code kUnimplemented.
Error unserved_key(const std::string& origin,
                   const std::string& key,
                   const nlohmann::json& value,
                   const std::string& supported);

// The file says what it must not. Code kDataLoss.
Error broken_file(const std::string& origin, const std::string& what);

// The `replacement` of a Metaspace: one character. Errors: kDataLoss.
Result<std::string> metaspace_sign(const nlohmann::json& step, const std::string& origin);

// `key` of `object` if it is a boolean, `fallback` if it is absent or null. Errors: kDataLoss.
Result<bool> json_flag(const nlohmann::json& object,
                       const char* key,
                       bool fallback,
                       const std::string& origin);

}  // namespace afd::model
