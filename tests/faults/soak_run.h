// SPDX-License-Identifier: Apache-2.0
#pragma once

// SoakRun: one instance at four fifths of what it can do, for long, with a worker killed now and
// then.
//
// What it can do is measured first, with a fixed number of requests in flight. Then requests begin
// at even intervals, whatever became of those before; a pause makes the next ones late by at most
// the requests that may be in flight.

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/footprint.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {

struct SoakReport {
    double requests_per_second = 0;
    uint64_t num_kills = 0;
    uint64_t num_requests = 0;
    uint64_t num_wrong = 0;  // Lost, doubled or changed.
    // From the sending, in ms, of the requests that began in the first and the last window.
    std::vector<double> first_token_ms[2];
    std::vector<double> end_ms[2];
    Footprint footprint[2];  // Of afdd, when each window ended.
    uint64_t num_segments[2] = {};
    // At the end beyond what there was before the first request.
    int64_t num_descriptors_more = 0;
    int64_t num_segments_more = 0;

    // Several lines: percentiles and footprints of both windows.
    std::string text() const;
};

class SoakRun {
  public:
    struct Settings {
        double seconds = 0;
        double window_seconds = 0;  // At both ends.
        double kill_seconds = 0;    // Between two kills.
        // 0: four fifths of what is measured. Another: so that two runs have the same load.
        double requests_per_second = 0;
        uint32_t seed = 0;
    };
    explicit SoakRun(const Settings& settings);

    // Runs, lets everything end, and stops the instance. Fails the test if a reply is wrong.
    SoakReport run();

  private:
    using TimePoint = client::Clock::time_point;

    struct Flight {
        size_t template_index = 0;
        TimePoint sent;
        int window = -1;
        Reply reply;
    };

    double measure_rate();
    void send_one(int window);
    void receive_until(TimePoint when);
    void take(const client::Response& response);
    void kill_one();
    int window_of(TimePoint when) const;
    void note_window(int window);
    void print_progress(TimePoint now);
    void note_growth(const Footprint& before, size_t num_segments_before);

    const Settings settings_;
    std::mt19937 random_;
    Instance instance_;
    std::vector<client::Generate> templates_;
    std::vector<Reply> expected_;
    client::Connection connection_;
    TimePoint start_;
    std::map<uint64_t, Flight> flights_;
    uint64_t next_id_ = 1;
    // Each worker once, in an order drawn anew each time, so that windows are alike: role and
    // index.
    std::vector<std::pair<std::string, size_t>> next_victims_;
    std::vector<double> progress_ms_;  // Of the requests that ended since the last line about it.
    SoakReport report_;
};

}  // namespace afd::test
