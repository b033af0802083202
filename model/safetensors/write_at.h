// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of the bytes at a place of a file, which the kernel may take in parts.

#include <cstddef>
#include <cstdint>
#include <span>

namespace afd::model {

// 0, or the errno of the failure, for file_error_code(); ENOSPC if the kernel takes nothing and
// names no error. A signal does not end it.
int write_at(int fd, uint64_t offset, std::span<const std::byte> bytes);

}  // namespace afd::model
