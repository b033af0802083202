// SPDX-License-Identifier: Apache-2.0
#pragma once

// Percent-encoding (RFC 3986, 2.1): %2F is a slash, in a path and in a fragment.

#include <string>
#include <string_view>

namespace afd::model {

// What is no such escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace afd::model
