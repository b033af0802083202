// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace afd::daemon {

// The words between commas, as they stand; an empty text is one empty word.
std::vector<std::string> comma_list(std::string_view text);

}  // namespace afd::daemon
