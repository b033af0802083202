// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON of a model directory: bytes of others, so parsed strictly. A repeated key, nesting deeper
// than kJsonDepthMax and anything after the value are errors with the place they were found at.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::model {

// tokenizer.json nests about eight levels; a limit keeps a hostile file from exhausting memory.
inline constexpr size_t kJsonDepthMax = 64;

// Parses the text of a file. `origin` (its path) starts every error message, which says so if the
// file is of another format. Errors: kDataLoss.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& origin);

// The same of what is no file.
Result<nlohmann::json> parse_json_text(std::string_view text, const std::string& origin);

// The whole of a regular file of at most `bytes_max` bytes.
// Errors: kNotFound, kPermissionDenied, kDataLoss (not a regular file, too large, shrinking).
Result<std::string> read_text_file(const std::string& path, size_t bytes_max);

}  // namespace afd::model
