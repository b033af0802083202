// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON of a client with the members of each object in their order, for where the order is that of
// an answer: schemas, tools, arguments. nlohmann::ordered_json finds a key by looking at each
// member before it, so that an object costs the square of its members: one request could keep a
// process busy for minutes. Hence the limits.
//
// A whole number below 1.8e308 is what its digits say: what a client or a model wrote as an id
// comes out as that id. One that 64 bits do not hold is a value of its own kind, which dump() does
// not know: write with the functions below.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::model {

inline constexpr size_t kOrderedDepthMax = 64;      // Objects and arrays within each other,
inline constexpr size_t kOrderedMembersMax = 512;   // members of an object,
inline constexpr size_t kOrderedValuesMax = 16384;  // and all values.

// Errors: kInvalidArgument, beginning with `what`: no JSON, or beyond a limit, which is named.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, const std::string& what);

// Of an object, only the member `name`, as an object with it, or an empty one: the limits are for
// what is kept (and the depth for all). Errors: the same; `text` is no object.
Result<nlohmann::ordered_json> parse_ordered_member(std::string_view text,
                                                    const std::string& name,
                                                    const std::string& what);

bool is_long_integer(const nlohmann::ordered_json& json);

// `json`, which one of these has parsed or that was made of such, as text: without blanks, or as
// Python's json.dumps with ensure_ascii=False writes it, with one behind each comma and colon.
std::string compact_text(const nlohmann::ordered_json& json);
std::string spaced_text(const nlohmann::ordered_json& json);
// The former, as far as it fits the line of an error.
std::string shown_text(const nlohmann::ordered_json& json);

}  // namespace afd::model
