// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/free_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <sstream>

#include "tests/integration/spawned_program.h"

namespace afd::test {
namespace {

// Of one process, whose pid says which.
constexpr uint32_t kPortsOfAProcess = 16;

bool is_free(uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const int bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    ::close(socket);
    return bound == 0;
}

}  // namespace

uint16_t free_port() {
    static std::atomic<uint32_t> next{0};
    uint32_t handed_out = 0;
    std::istringstream(read_text("/proc/sys/net/ipv4/ip_local_port_range")) >> handed_out;
    const uint32_t first = handed_out / 2;
    const uint32_t own = static_cast<uint32_t>(::getpid()) * kPortsOfAProcess;
    for (uint32_t i = first; i < handed_out; ++i) {
        const auto port =
            static_cast<uint16_t>(first + (own + next.fetch_add(1)) % (handed_out - first));
        if (is_free(port)) return port;
    }
    ADD_FAILURE() << "no port from " << first << " to " << handed_out << " is free";
    return 0;
}

}  // namespace afd::test
