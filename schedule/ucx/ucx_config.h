// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxConfig: over what a worker talks, and where it listens.

#include <cstdint>
#include <string>

namespace afd::schedule {

struct UcxConfig {
    std::string transports = "tcp";  // "tcp", "sm", "rc", ...: as in UCX_TLS, commas between.
    std::string devices = "all";     // As in UCX_NET_DEVICES; "lo" for this host alone.
    std::string host = "127.0.0.1";  // Where it listens: an address of this host, IPv4 or IPv6.
    uint16_t port = 0;               // 0: any that is free; else the first that is, up to
    uint16_t last_port = 0;          // this one. So with the ports that UCX itself opens.
    // Whether these transports tell that a peer is gone. The shared memory of UCX ("sm,self") does
    // not: there its silence does, and paths stay until the worker ends. False in tests and
    // benchmarks only: an instance refuses such a list.
    bool tells_failures = true;
    // Who has UCX for longer than this never comes back: the process ends, and a successor has
    // another UCX.
    uint64_t stuck_us = 10'000'000;
    // Ends it, on whichever thread has noticed; does not return. Null: aborts.
    void (*end_stuck)(const std::string& why) = nullptr;
    // Whether workers of one host talk through memory instead (schedule/near).
    bool near_by_memory = false;
};

}  // namespace afd::schedule
