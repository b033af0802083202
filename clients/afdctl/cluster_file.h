// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files of a cluster's directory: each appears whole, under its name, or not at all, and none is
// ever replaced.

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::client {

// Nothing: there is no such file. Errors: kPermissionDenied.
Result<std::optional<std::string>> read_cluster_file(const std::string& path);

// The bytes are on the disk when this returns; an interrupted call leaves at most a file with a
// dot in front of its name. Errors: kAlreadyExists; kPermissionDenied: the system refused.
Result<> write_cluster_file(const std::string& path, std::string_view bytes, mode_t mode);

}  // namespace afd::client
