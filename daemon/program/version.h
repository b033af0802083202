// SPDX-License-Identifier: Apache-2.0
#pragma once

// The version of the build, from the project() line of the root CMakeLists.txt.

#include <string_view>

namespace afd::daemon {

inline constexpr std::string_view kVersion = AFD_VERSION;

}  // namespace afd::daemon
