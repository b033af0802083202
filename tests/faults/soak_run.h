// SPDX-License-Identifier: Apache-2.0
#pragma once

// SoakRun: one instance at four fifths of what it can do, for long, with a worker killed now and
// then.
//
// What it can do is measured first, with a fixed number of requests in flight. Then requests begin
// at even intervals, whatever became of those before; a pause makes the next ones late by at most
// the requests that may be in flight.
//
// With a control each window has an instance of its own beside the old one: new, and warm. They
// take turns as long as the time between two kills, so that each turn has one. What a machine that
// others share does to a window it does to both; what age does, to one of them. Windows must not
// touch.

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/footprint.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {

// From the sending, in ms, of the requests that began in a window.
struct SoakTimes {
    std::vector<double> first_token_ms;
    std::vector<double> end_ms;
};

struct SoakReport {
    double requests_per_second = 0;
    uint64_t num_kills = 0;
    uint64_t num_requests = 0;
    uint64_t num_wrong = 0;  // Lost, doubled or changed.
    // Of the first and the last window.
    SoakTimes old_times[2];
    SoakTimes control_times[2];  // Empty without a control.
    Footprint footprint[2];      // Of afdd, when each window ended.
    uint64_t num_segments[2] = {};
    // At the end beyond what there was before the first request.
    int64_t num_descriptors_more = 0;
    int64_t num_segments_more = 0;

    // Several lines: percentiles and footprints of both windows, and how the old instance compares
    // with the new one of each.
    std::string text() const;
};

class SoakRun {
  public:
    struct Settings {
        double seconds = 0;
        double window_seconds = 0;  // At both ends.
        double kill_seconds = 0;    // Between two kills.
        bool has_control = false;
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
        SoakTimes* times = nullptr;  // Null: of no window.
        Reply reply;
    };
    // An instance under load.
    struct Side {
        explicit Side(const std::vector<client::Generate>& templates);

        Instance instance;
        std::vector<Reply> replies;  // Undisturbed, of each template.
        client::Connection connection;
        // Each worker once, in an order drawn anew each time, so that windows are alike: role and
        // index.
        std::vector<std::pair<std::string, size_t>> next_victims;
    };

    double measure_rate();
    // Who has this turn; starts the control of a window, and ends it. What that took, which does
    // not count.
    client::Clock::duration take_turns();
    double turn_seconds() const;  // With a control.
    void end_control();
    void wait_for_flights();
    void send_one(SoakTimes* times);
    void receive_until(TimePoint when);
    void take(const client::Response& response);
    void kill_one();
    int window_of(TimePoint when) const;
    SoakTimes* times_at(TimePoint when);
    void note_window(int window);
    void print_progress(TimePoint now);
    void note_growth(const Footprint& before, size_t num_segments_before);

    const Settings settings_;
    std::mt19937 random_;
    const std::vector<client::Generate> templates_;
    Side old_;
    std::unique_ptr<Side> control_;
    Side* turn_ = &old_;
    TimePoint start_;
    std::map<uint64_t, Flight> flights_;
    uint64_t next_id_ = 1;
    std::vector<double> progress_ms_;  // Of the requests that ended since the last line about it.
    SoakReport report_;
};

}  // namespace afd::test
