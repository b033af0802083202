// SPDX-License-Identifier: Apache-2.0
#pragma once

// How command lines, messages, logs and the status call a worker and its role.

#include <cstdint>
#include <string>

#include "proto/control.pb.h"

namespace afd::daemon {

// A role as messages have it, one of the two.
inline const char* role_name(control::Role role) {
    return role == control::FFN ? "ffn" : "attention";
}

// "ffn worker 3".
inline std::string worker_name(control::Role role, uint32_t index) {
    return std::string(role_name(role)) + " worker " + std::to_string(index);
}

}  // namespace afd::daemon
