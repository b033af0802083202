// SPDX-License-Identifier: Apache-2.0
//
// afd-link: a slow or lossy wire between two network namespaces of this machine, to try an instance
// on several hosts over the network that it will have. docs/hosts.md shows how.

#include <fmt/core.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "proto/command_words.h"
#include "proto/standard_descriptors.h"
#include "proto/standard_output.h"
#include "proto/usage_error.h"
#include "tools/afd-link/link_emulator.h"
#include "tools/number_option.h"

namespace afd::tools {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr uint64_t kDelayUsMax = 60'000'000;

struct Options {
    std::vector<std::string> devices;
    int delay_us = 0;
    int jitter_us = 0;
    double loss = 0;
    double mbit_per_second = 0;
    uint64_t seed = 1;
};

// Until one of the signals, which are blocked, or until the event.
void wait_for(const sigset_t& signals, int event) {
    const int arrived = ::signalfd(-1, &signals, SFD_CLOEXEC);
    std::array<pollfd, 2> fds{pollfd{arrived, POLLIN, 0}, pollfd{event, POLLIN, 0}};
    while (::poll(fds.data(), fds.size(), -1) < 0 && errno == EINTR) {
    }
    if (arrived >= 0) ::close(arrived);
}

int run(const Options& options) {
    // Before the thread of the link starts, which must not end by them either.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    const std::string& one = options.devices[0];
    const std::string& other = options.devices[1];
    const LinkEmulator link({one, other},
                            {.delay = std::chrono::microseconds(options.delay_us),
                             .jitter = std::chrono::microseconds(options.jitter_us),
                             .loss = options.loss,
                             .mbit_per_second = options.mbit_per_second},
                            options.seed);
    if (!link.ok()) {
        std::fprintf(stderr,
                     "afd-link: cannot make the TAP devices %s and %s; that takes root or "
                     "CAP_NET_ADMIN, /dev/net/tun, and names that no device has\n",
                     one.c_str(),
                     other.c_str());
        return kExitFailed;
    }
    std::printf("afd-link: %s and %s are the ends of one wire, until SIGTERM\n",
                one.c_str(),
                other.c_str());
    std::fflush(stdout);
    wait_for(ends, link.ended());
    std::fputs(fmt::format("afd-link: {} frames, {} lost, {} overtaken\n",
                           link.num_frames(),
                           link.num_lost(),
                           link.num_overtaken())
                   .c_str(),
               stdout);
    const std::optional<size_t> gone = link.gone_device();
    if (!gone) return 0;
    std::fprintf(
        stderr,
        "afd-link: the device %s is gone, and the wire with it; was its namespace deleted?\n",
        options.devices[*gone].c_str());
    return kExitFailed;
}

int main_with(int argc, char** argv) {
    Options options;
    CLI::App app(
        "A slow or lossy wire between two network namespaces of this machine: two TAP devices of\n"
        "the given names, and between them what `tc netem` would do. Each end is to be moved to "
        "its\n"
        "namespace, given an address and set up. As root.\n"
        "\n"
        "Example, a host \"b\" behind 2 ms and 100 Mbit/s:\n"
        "  afd-link wire_a wire_b --delay-us 2000 --mbit 100 &\n"
        "  ip netns add b && ip link set wire_b netns b\n"
        "  ip addr add 10.9.0.1/30 dev wire_a && ip link set wire_a up\n"
        "  ip netns exec b sh -c 'ip addr add 10.9.0.2/30 dev wire_b; ip link set wire_b up'\n",
        "afd-link");
    app.set_version_flag("--version", "afd-link " AFD_VERSION);
    app.add_option("devices", options.devices, "Names of the two ends")
        ->required()
        ->expected(2)
        ->check([](const std::string& name) -> std::string {
            if (name.size() < IFNAMSIZ) return "";
            return fmt::format(
                "\"{}\": a device's name has at most {} characters", name, IFNAMSIZ - 1);
        });
    app.add_option("--delay-us", options.delay_us, "Of every frame, one way, microseconds")
        ->transform(whole_from(0, kDelayUsMax))
        ->capture_default_str();
    app.add_option("--jitter-us", options.jitter_us, "So much more at most, drawn for each frame")
        ->transform(whole_from(0, kDelayUsMax))
        ->capture_default_str();
    app.add_option("--loss", options.loss, "The part of the frames that is lost")
        ->check(number_from(0, 1))
        ->capture_default_str();
    app.add_option("--mbit", options.mbit_per_second, "Mbit/s of each direction; 0: no limit")
        ->check(number_from(0, 1e6))
        ->capture_default_str();
    app.add_option("--seed", options.seed, "Of what is drawn")
        ->transform(whole_from(0, UINT64_MAX))
        ->capture_default_str();
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        return end_parse(app, error, "afd-link", kExitUsage);
    }
    return run(options);
}

}  // namespace
}  // namespace afd::tools

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    return afd::end_standard_output("afd-link", afd::tools::main_with(argc, argv));
}
