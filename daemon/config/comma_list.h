// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a list in one text of the configuration is taken apart: hosts, devices, transports. What a
// word may be, an empty one for instance, is judged by who asks.

#include <string>
#include <string_view>
#include <vector>

namespace afd::daemon {

// The words between commas, as they stand, spaces included; an empty text is one empty word.
std::vector<std::string> comma_list(std::string_view text);

}  // namespace afd::daemon
