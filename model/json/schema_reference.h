// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a $ref leads: the fragment of a URI that is a JSON pointer (RFC 6901, 6).

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace afd::model {

// The value within `root` that `fragment`, what stands behind '#', points to: through the members
// of objects and the elements of arrays. Escapes of URIs (%3C) are undone before those of pointers
// (~1). Null: nothing is there.
const nlohmann::ordered_json* find_reference(const nlohmann::ordered_json& root,
                                             std::string_view fragment);

}  // namespace afd::model
