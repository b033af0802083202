// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes of a configuration file, and whether it may be one: a regular file that only its owner
// can write. It names a model and libraries that run with the rights of afdd, so who can write it
// is asked of what was opened, and not of its name.

#include <string>

#include "proto/status.h"

namespace afd::daemon {

// How afdd came to the file. One that was found where afdd happened to be started must also belong
// to the user or to root; whoever names a file answers for its owner.
enum class ConfigFilePlace { kNamed, kFound };

// Never waits, whatever the name stands for.
// Errors: kNotFound: cannot be opened or read. kInvalidArgument: no regular file, too long.
// kPermissionDenied: others can write it.
Result<std::string> read_config_file(const std::string& file, ConfigFilePlace place);

}  // namespace afd::daemon
