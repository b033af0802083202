// SPDX-License-Identifier: Apache-2.0

// bench_network [--short] [WAY]: windows over UCX and through memory, a session and a rank as two
// processes of this host. WAY: only this one of the ways that it prints.
//
//   latency    one row of 14 KiB there and one back, each way: half the round trip, as
//              ucx_perftest counts its ucp_am_lat over the same transport, in the same run
//   bandwidth  8 and 16 publications of 16 rows in flight, against ucx_perftest's ucp_am_bw with
//              messages of as many bytes, of which it has some 32 on their way
//   windows    the same over windows that both processes map
// Over TCP ucx_perftest runs as it comes and as afd sets UCX up (perftest_as_afd). The congestion
// control is printed: what TCP does on loopback depends on it.
// Five runs, each of a second or so, that alternate with the peer's. Figures are medians of the
// runs; a ratio is the median of the ratios of each run, whose two sides had the same neighbours on
// the machine. ucx_perftest is of Debian's ucx-utils (scripts/setup --bench).

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

struct Loads {
    NetworkLoad one{.num_rounds = 40'000};
    NetworkLoad eight{.num_lanes = 8, .rows = 16, .returns_rows = false, .num_rounds = 3'500};
    NetworkLoad sixteen{.num_lanes = 16, .rows = 16, .returns_rows = false, .num_rounds = 1'750};

    explicit Loads(bool is_short) {
        if (!is_short) return;
        for (NetworkLoad* load : {&one, &eight, &sixteen}) load->num_rounds /= 10;
    }
};

// How many rounds ucx_perftest makes, and how many before.
std::string as_many(const NetworkLoad& load) {
    const uint32_t num_messages = load.num_lanes * load.num_rounds;
    return " -n " + std::to_string(num_messages) + " -w " + std::to_string(num_messages / 10);
}

// Of each run a value; 0: there was none.
struct Series {
    std::vector<double> values;

    double median() const {
        std::vector<double> sorted = values;
        if (sorted.empty()) return 0;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    }
    // Run by run.
    Series over(const Series& other) const {
        Series ratios;
        for (size_t i = 0; i < std::min(values.size(), other.values.size()); ++i) {
            if (other.values[i] > 0) ratios.values.push_back(values[i] / other.values[i]);
        }
        return ratios;
    }
};

struct Figures {
    Series us;
    Series rate;  // Eight in flight.
    Series rate_of_sixteen;
};

void run_ours(const Loads& loads, const std::optional<schedule::UcxConfig>& ucx, Figures& ours) {
    ours.us.values.push_back(ours_us(loads.one, ucx));
    ours.rate.values.push_back(ours_gbytes(loads.eight, ucx));
    ours.rate_of_sixteen.values.push_back(ours_gbytes(loads.sixteen, ucx));
}

void print_ours(const char* name, const Figures& ours) {
    std::printf(
        "{\"way\": \"%s\", \"one_way_us\": %.2f, \"gbytes_per_s\": %.2f, "
        "\"gbytes_per_s_16\": %.2f",
        name,
        ours.us.median(),
        ours.rate.median(),
        ours.rate_of_sixteen.median());
}

void report(const Way& way, const Loads& loads, int num_runs) {
    Figures ours;
    Figures theirs;
    Series rate_as_afd;
    for (int run = 0; run < num_runs; ++run) {
        run_ours(loads, way.ucx, ours);
        // Iterations, median, average and overall latency in us, average and overall MB/s.
        const auto latency =
            perftest(way.environment, "-t ucp_am_lat -s 14336" + as_many(loads.one));
        theirs.us.values.push_back(latency.size() > 1 ? latency[1] : 0);
        const std::string options = "-t ucp_am_bw -s " +
                                    std::to_string(loads.eight.rows * loads.eight.row_bytes) +
                                    as_many(loads.eight);
        theirs.rate.values.push_back(gbytes_of(perftest(way.environment, options)));
        if (way.as_afd.empty()) continue;
        rate_as_afd.values.push_back(
            gbytes_of(perftest(way.environment + " " + way.as_afd, options)));
    }
    print_ours(way.name, ours);
    if (theirs.us.median() > 0 && theirs.rate.median() > 0) {
        std::printf(
            ", \"perftest_us\": %.2f, \"perftest_gbytes_per_s\": %.2f, "
            "\"latency_ratio\": %.2f, \"bandwidth_ratio\": %.2f, \"bandwidth_ratio_16\": %.2f",
            theirs.us.median(),
            theirs.rate.median(),
            ours.us.over(theirs.us).median(),
            ours.rate.over(theirs.rate).median(),
            ours.rate_of_sixteen.over(theirs.rate).median());
    } else {
        std::printf(", \"perftest\": \"not there: scripts/setup --bench\"");
    }
    if (rate_as_afd.median() > 0) {
        std::printf(", \"perftest_as_afd_gbytes_per_s\": %.2f, \"bandwidth_ratio_as_afd\": %.2f",
                    rate_as_afd.median(),
                    ours.rate.over(rate_as_afd).median());
    }
    std::printf("}\n");
    std::fflush(stdout);
}

void report_windows(const Loads& loads, int num_runs) {
    Figures ours;
    for (int run = 0; run < num_runs; ++run) run_ours(loads, std::nullopt, ours);
    print_ours("windows", ours);
    std::printf("}\n");
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
    const afd::bench::Loads loads(is_short);
    const auto is_wanted = [&](std::string_view way) {
        return arguments.empty() || arguments.front() == way;
    };
    std::printf("{\"num_cores\": %u, \"tcp_congestion_control\": \"%s\"}\n",
                std::thread::hardware_concurrency(),
                afd::bench::congestion_control().c_str());
    if (is_wanted("windows")) afd::bench::report_windows(loads, num_runs);
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
        if (is_wanted(way.name)) afd::bench::report(way, loads, num_runs);
    }
    return 0;
}
