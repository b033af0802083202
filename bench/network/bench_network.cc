// SPDX-License-Identifier: Apache-2.0

// bench_network [--short] [WAY]: windows over UCX and through memory, a session and a rank as two
// processes of this host. WAY: only this one of the ways that it prints.
//
//   latency    one row of 14 KiB there and one back, each way: half the round trip, as
//              ucx_perftest counts its ucp_am_lat over the same transport, in the same run
//   bandwidth  eight publications of 16 rows in flight, against ucx_perftest's ucp_am_bw with
//              messages of as many bytes
//   windows    the same over windows that both processes map
// Over TCP ucx_perftest runs as it comes and as afd sets UCX up (perftest_as_afd). The congestion
// control is printed: what TCP does on loopback depends on it.
// Medians. Each figure is the best of a few runs that alternate with the peer's: a busy neighbour
// only ever adds time. ucx_perftest is of Debian's ucx-utils (scripts/setup --bench).

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/network/network_pair.h"

namespace afd::bench {
namespace {

struct Way {
    const char* name;
    schedule::UcxConfig ucx;
    std::string environment;  // Of ucx_perftest.
    std::string as_afd = {};  // Beside it, for the settings of ucx_library.cc; empty: no such run.
};

// What ucx_perftest prints: the columns of its last line.
std::vector<double> perftest(const std::string& environment, const std::string& options) {
    static int port = 13400 + static_cast<int>(std::time(nullptr) % 1000);
    ++port;
    const std::string common = environment + " timeout 60 ucx_perftest -p " + std::to_string(port);
    const std::string command = common + " > /dev/null 2>&1 & sleep 1; " + common +
                                " 127.0.0.1 -v " + options + " 2>/dev/null | tail -n 1; wait";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::vector<double> columns;
    std::array<char, 512> line{};
    while (pipe != nullptr && std::fgets(line.data(), line.size(), pipe) != nullptr) {
        columns.clear();
        char* at = line.data();
        for (char* end = at;; at = end + 1) {
            const double value = std::strtod(at, &end);
            if (end == at) break;
            columns.push_back(value);
            if (*end != ',') break;
        }
    }
    if (pipe != nullptr) ::pclose(pipe);
    return columns;
}

double ours_us(const NetworkLoad& load, const std::optional<schedule::UcxConfig>& ucx) {
    const Result<NetworkFigures> figures = measure_pair(load, ucx);
    if (figures.ok()) return figures.value().round_trip_us / 2;
    std::fprintf(stderr, "bench_network: %s\n", figures.error().message.c_str());
    return 0;
}

double ours_gbytes(const NetworkLoad& load, const std::optional<schedule::UcxConfig>& ucx) {
    const Result<NetworkFigures> figures = measure_pair(load, ucx);
    return figures.ok() ? figures.value().gbytes_per_s : 0;
}

// The average of the run, which is in units of 2^20 bytes.
double gbytes_of(const std::vector<double>& columns) {
    return columns.size() > 5 ? columns[5] * 1.048576e-3 : 0;
}

void report(const Way& way, int num_runs) {
    const NetworkLoad one{.num_rounds = 4000};
    const NetworkLoad many{.num_lanes = 8, .rows = 16, .returns_rows = false, .num_rounds = 400};
    const std::string many_bytes = std::to_string(many.rows * many.row_bytes);
    double our_us = 1e9;
    double their_us = 1e9;
    double our_rate = 0;
    double their_rate = 0;
    double their_rate_as_afd = 0;
    for (int run = 0; run < num_runs; ++run) {
        our_us = std::min(our_us, ours_us(one, way.ucx));
        our_rate = std::max(our_rate, ours_gbytes(many, way.ucx));
        // Iterations, median, average and overall latency in us, average and overall MB/s.
        const auto latency = perftest(way.environment, "-t ucp_am_lat -s 14336 -n 4000 -w 400");
        if (latency.size() > 1) their_us = std::min(their_us, latency[1]);
        const std::string options = "-t ucp_am_bw -s " + many_bytes + " -n 3000 -w 300";
        their_rate = std::max(their_rate, gbytes_of(perftest(way.environment, options)));
        if (way.as_afd.empty()) continue;
        const std::string as_afd = way.environment + " " + way.as_afd;
        their_rate_as_afd = std::max(their_rate_as_afd, gbytes_of(perftest(as_afd, options)));
    }
    std::printf("{\"way\": \"%s\", \"one_way_us\": %.2f, \"gbytes_per_s\": %.2f",
                way.name,
                our_us,
                our_rate);
    if (their_us < 1e9 && their_rate > 0) {
        std::printf(
            ", \"perftest_us\": %.2f, \"perftest_gbytes_per_s\": %.2f, "
            "\"latency_ratio\": %.2f, \"bandwidth_ratio\": %.2f",
            their_us,
            their_rate,
            our_us / their_us,
            our_rate / their_rate);
        if (their_rate_as_afd > 0) {
            std::printf(
                ", \"perftest_as_afd_gbytes_per_s\": %.2f, \"bandwidth_ratio_as_afd\": %.2f",
                their_rate_as_afd,
                our_rate / their_rate_as_afd);
        }
    } else {
        std::printf(", \"perftest\": \"not there: scripts/setup --bench\"");
    }
    std::printf("}\n");
    std::fflush(stdout);
}

void report_windows(int num_runs) {
    const NetworkLoad one{.num_rounds = 4000};
    const NetworkLoad many{.num_lanes = 8, .rows = 16, .returns_rows = false, .num_rounds = 400};
    double us = 1e9;
    double rate = 0;
    for (int run = 0; run < num_runs; ++run) {
        us = std::min(us, ours_us(one, std::nullopt));
        rate = std::max(rate, ours_gbytes(many, std::nullopt));
    }
    std::printf("{\"way\": \"windows\", \"one_way_us\": %.2f, \"gbytes_per_s\": %.2f}\n", us, rate);
    std::fflush(stdout);
}

std::string congestion_control() {
    std::string name = "unknown";
    std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> name;
    return name;
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    using afd::bench::Way;
    std::vector<std::string_view> arguments(argv + 1, argv + argc);
    const bool is_short = std::erase(arguments, "--short") > 0;
    const int num_runs = is_short ? 1 : 5;
    const auto is_wanted = [&](std::string_view way) {
        return arguments.empty() || arguments.front() == way;
    };
    std::printf("{\"num_cores\": %u, \"tcp_congestion_control\": \"%s\"}\n",
                std::thread::hardware_concurrency(),
                afd::bench::congestion_control().c_str());
    if (is_wanted("windows")) afd::bench::report_windows(num_runs);
    const std::array<Way, 3> ways = {
        Way{"memory",
            {.transports = "tcp", .devices = "lo", .near_by_memory = true},
            "UCX_TLS=sm,self"},
        Way{"ucx tcp",
            {.transports = "tcp", .devices = "lo"},
            "UCX_TLS=tcp UCX_NET_DEVICES=lo",
            "UCX_TCP_RX_SEG_SIZE=256k UCX_RNDV_THRESH=inf"},
        Way{"ucx shared memory",
            {.transports = "tcp,sm,self", .devices = "lo", .tells_failures = false},
            "UCX_TLS=sm,self"}};
    for (const Way& way : ways) {
        if (is_wanted(way.name)) afd::bench::report(way, num_runs);
    }
    return 0;
}
