// SPDX-License-Identifier: Apache-2.0
#pragma once

// NearAddress: where a worker can be reached by workers of its own host, and how they know that it
// is theirs: a socket of the kernel without a file (an abstract name), which is one network
// namespace's of one boot of one machine.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace afd::schedule {

struct NearAddress {
    std::array<std::byte, 16> boot{};  // The kernel's boot_id.
    uint64_t network = 0;              // Inode of the network namespace.
    std::array<std::byte, 16> name{};  // Random, so that there is no other.

    bool is_of_same_host(const NearAddress& other) const {
        return boot == other.boot && network == other.network;
    }
};
static_assert(sizeof(NearAddress) == 40, "no padding: it travels as bytes");

// An address of this host that nobody listens at; nothing if the kernel does not say where we are.
std::optional<NearAddress> new_near_address();

}  // namespace afd::schedule
