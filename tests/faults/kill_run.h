// SPDX-License-Identifier: Apache-2.0
#pragma once

// KillRun: one instance under load whose workers are killed at random.
//
// A fixed number of requests is always in flight, drawn from a small set whose replies are known
// from the undisturbed instance. A kill is kill -9, in three of ten cases SIGSTOP and then kill -9;
// in one of ten it hits a worker of each role. The next comes at a random time after all workers
// are ready again, so that each has something to disturb.
//
// Where there is another host, too, what is killed there is the stand-in of a worker, or, in one of
// three cases, all its workers at once, half of the time with the host's afdd. Where a wire leads
// to it, one of four strikes kills nobody, but cuts the wire for up to 1.5 s.

#include <map>
#include <memory>
#include <optional>
#include <random>

#include "tests/faults/kill_report.h"
#include "tests/integration/instance.h"
#include "tests/integration/joined_process.h"
#include "tests/integration/network_wire.h"
#include "tests/integration/workload.h"

namespace afd::test {

struct KillScenario {
    uint32_t num_attention_workers;
    uint32_t num_ffn_workers;
    std::string router;
    std::string dispatch;
    bool has_replicas = false;  // Each FFN worker has all experts.
    bool is_over_ucx = false;   // transport = ucx.
    bool has_host = false;      // Every other worker of a role runs on another host.
    bool is_near = false;       // With transport = ucx: messages go through memory.
    bool has_wire = false;      // The other host is behind a network of its own.
    bool is_bad = false;        // Which delays, reorders and loses.

    std::string name() const;
};

class KillRun {
  public:
    KillRun(const KillScenario& scenario, uint32_t seed);

    // Kills `num_kills` times, lets everything end, and stops the instance.
    KillReport run(uint64_t num_kills);

  private:
    using TimePoint = client::Clock::time_point;

    struct Flight {
        size_t template_index = 0;
        Reply reply;
        bool is_held_up = false;  // Nothing came since the last kill.
    };
    // The kill whose consequences are awaited.
    struct Kill {
        TimePoint at;
        KillTimes* times = nullptr;
        std::vector<pid_t> pids;
        size_t num_concerned = 0;  // Requests in flight that it may have held up.
        std::optional<double> restart_ms;
        std::map<uint64_t, double> gaps_ms;  // Of requests that were in flight, once they went on.
        size_t num_in_flight = 0;
    };
    void send_one();
    void receive();
    void take(const client::Response& response);
    void end(const Flight& flight);
    void serve_until(TimePoint when);
    void strike();
    void strike_workers(const client::Status& status);
    void strike_host(const client::Status& status);
    void strike_wire();
    void stop_sending();
    void aim(Kill kill);
    // Whether everything that the kill held up went on, and the successors are ready.
    bool is_over();
    void note_gaps();
    void drain();

    std::unique_ptr<JoinedProcess> join() const;

    std::mt19937 random_;
    const bool goes_on_without_host_;
    const std::string certificates_;  // Empty: there is no other host.
    const std::unique_ptr<NetworkWire> wire_;
    Instance instance_;
    std::string address_;
    std::unique_ptr<JoinedProcess> host_;
    std::vector<client::Generate> templates_;
    std::vector<Reply> expected_;
    client::Connection connection_;
    client::Client asker_;  // For the status, aside of the load.
    std::map<uint64_t, Flight> flights_;
    uint64_t next_id_ = 1;
    bool is_sending_ = true;
    std::optional<Kill> kill_;
    KillReport report_;
};

}  // namespace afd::test
