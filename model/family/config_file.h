// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reading a config.json: which family it is of, then that family's keys.

#include <string>
#include <string_view>

#include "model/checkpoint/config.h"
#include "proto/status.h"

namespace afd::model {

// Reads the text of a config.json. `origin` (a path) starts every error message.
// Of a model of text and images those of its text model (text_config.h).
// A configuration that this version cannot serve exactly is refused; the message names the key, its
// value and what is supported.
// Errors: kDataLoss (not JSON), kInvalidArgument (a key missing or out of range), kUnimplemented
// (a valid configuration that this version does not serve).
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& origin);

}  // namespace afd::model
