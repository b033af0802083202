// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxAddress: where a worker that listens can be reached: by UCX, and by workers of its own host
// without it. It travels as bytes (Place, Listening of control.proto):
//
//   uint8 n | sockaddr, n bytes | nothing, or a NearAddress

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "proto/status.h"
#include "schedule/near/near_address.h"

namespace afd::schedule {

struct UcxAddress {
    sockaddr_storage ucx{};  // IPv4 or IPv6.
    std::optional<NearAddress> near;

    std::vector<std::byte> bytes() const;
    // Errors: kDataLoss: it is none.
    static Result<UcxAddress> parse(std::span<const std::byte> bytes);
};

}  // namespace afd::schedule
