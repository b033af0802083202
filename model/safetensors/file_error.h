// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kind of failure of the world an error of the kernel's about a file is.

#include <cerrno>

#include "proto/status.h"

namespace afd::model {

// kPermissionDenied, kResourceExhausted (a full disk or a limit), kNotFound (no such file, or a
// folder that is none), else kUnavailable.
inline Code file_error_code(int error) {
    switch (error) {
        case EACCES:
        case EPERM:
        case EROFS:
            return Code::kPermissionDenied;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return Code::kResourceExhausted;
        case ENOENT:
        case ENOTDIR:
            return Code::kNotFound;
        default:
            return Code::kUnavailable;
    }
}

}  // namespace afd::model
