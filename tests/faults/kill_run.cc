// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/kill_run.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <iostream>

#include "tests/faults/fault_requests.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/footprint.h"

namespace afd::test {
namespace {

using std::chrono::milliseconds;

constexpr size_t kInFlight = 6;
constexpr uint32_t kCutMsMax = 1500;  // Shorter than what makes a host be given up.

constexpr tools::LinkConditions kBadNetwork{.delay = std::chrono::microseconds(100),
                                            .jitter = std::chrono::microseconds(200),
                                            .loss = 0.002};

double ms_between(client::Clock::time_point from, client::Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

std::vector<std::string> flags(const KillScenario& scenario,
                               const std::string& certificates,
                               const NetworkWire* wire) {
    // With replicas some time is to be without the worker.
    const std::string restart_ms = scenario.has_replicas ? "20" : "1";
    std::vector<std::string> all = {"--attention-workers",
                                    std::to_string(scenario.num_attention_workers),
                                    "--ffn-workers",
                                    std::to_string(scenario.num_ffn_workers),
                                    "--router",
                                    scenario.router,
                                    "--dispatch",
                                    scenario.dispatch,
                                    "--two-phase-block",
                                    "64",
                                    // A long prompt is to be long each time that it comes.
                                    "--prefix-cache",
                                    "false",
                                    // Kills follow each other faster than a worker that fails by
                                    // itself should be tried.
                                    "--restart-first-ms",
                                    restart_ms,
                                    "--restart-max-ms",
                                    restart_ms,
                                    "--start-attempts",
                                    "1000"};
    if (scenario.has_replicas) {
        all.insert(all.end(),
                   {"--expert-placement", "replicas:" + std::to_string(scenario.num_ffn_workers)});
    }
    if (scenario.has_host) {
        const auto more =
            wire == nullptr ? leader_flags(certificates) : wire->leader_flags(certificates);
        all.insert(all.end(), more.begin(), more.end());
        all.insert(all.end(), {"--attention-hosts", "local,b", "--ffn-hosts", "local,b"});
    } else if (scenario.is_over_ucx) {
        all.insert(all.end(),
                   {"--transport",
                    "ucx",
                    "--ucx-devices",
                    "lo",
                    "--ucx-neighbours",
                    scenario.is_near ? "memory" : "ucx"});
    }
    return all;
}

}  // namespace

std::string KillScenario::name() const {
    return std::to_string(num_attention_workers) + "A" + std::to_string(num_ffn_workers) + "F, " +
           "router = " + router + ", dispatch = " + dispatch + (has_replicas ? ", replicas" : "") +
           (is_over_ucx ? ", over ucx" : "") + (is_near ? ", through memory" : "") +
           (has_host ? ", two hosts" : "") + (has_wire ? ", neighbours by memory" : "") +
           (is_bad ? ", a bad network" : "");
}

KillRun::KillRun(const KillScenario& scenario, uint32_t seed)
    : random_(seed),
      goes_on_without_host_(scenario.has_replicas),
      certificates_(scenario.has_host ? make_certificates({"b"}) : ""),
      wire_(scenario.has_wire ? std::make_unique<NetworkWire>(
                                    scenario.is_bad ? std::optional(kBadNetwork) : std::nullopt)
                              : nullptr),
      instance_(flags(scenario, certificates_, wire_.get())),
      address_(!scenario.has_host ? ""
               : wire_ == nullptr ? join_address(instance_)
                                  : join_address(instance_, wire_->address())),
      host_(scenario.has_host ? join() : nullptr),
      templates_(fault_requests()),
      expected_([this] {
          instance_.wait_ready();
          return run_one_after_another(instance_, templates_);
      }()),
      connection_(instance_.open_connection()),
      asker_(instance_.connect()) {}

std::unique_ptr<JoinedProcess> KillRun::join() const {
    JoinedProcess::Options options{.name = "b", .certificates = certificates_, .address = address_};
    if (wire_ != nullptr) {
        options.device = wire_->device();
        options.before = wire_->in_namespace();
    }
    return std::make_unique<JoinedProcess>(options);
}

KillReport KillRun::run(uint64_t num_kills) {
    // An answer to the second connection: afdd has taken both by then, and they count as before.
    EXPECT_TRUE(asker_.status().ok());
    const Footprint before = footprint_of(instance_.pid());
    const auto random_ms = [this](int most) {
        return milliseconds(std::uniform_int_distribution<int>(0, most)(random_));
    };
    for (uint64_t i = 0; i < num_kills && !testing::Test::HasFailure(); ++i) {
        serve_until(client::Clock::now() + milliseconds(10) + random_ms(150));
        strike();
        const TimePoint deadline = client::Clock::now() + kPatience;
        while (!is_over() && client::Clock::now() < deadline) {
            serve_until(client::Clock::now() + milliseconds(2));
        }
        EXPECT_TRUE(is_over()) << "requests were held up for good, or a worker did not come back";
        note_gaps();
    }
    drain();
    // The last round's memory, say, is given back behind the last token.
    Footprint after = footprint_of(instance_.pid());
    const TimePoint deadline = client::Clock::now() + kPatience;
    while (after.num_descriptors > before.num_descriptors + 1 && client::Clock::now() < deadline) {
        serve_until(client::Clock::now() + milliseconds(20));
        after = footprint_of(instance_.pid());
    }
    if (after.num_descriptors > before.num_descriptors + 1) {
        std::cout << "descriptors of afdd:\n" << descriptors_of(instance_.pid());
    }
    report_.num_descriptors_more = after.num_descriptors - before.num_descriptors;
    report_.kib_more = after.kib - before.kib;
    EXPECT_EQ(instance_.stop(), 0);
    report_.num_segments_left = instance_.segments().size();
    return report_;
}

void KillRun::send_one() {
    const size_t index = random_() % templates_.size();
    client::Request request;
    request.set_request_id(next_id_);
    *request.mutable_generate() = templates_[index];
    ASSERT_TRUE(connection_.send(request).ok());
    flights_[next_id_++].template_index = index;
}

void KillRun::serve_until(TimePoint when) {
    do {
        while (is_sending_ && flights_.size() < kInFlight) send_one();
        pollfd ready{connection_.fd(), connection_.events(), 0};
        poll(&ready, 1, 1);
        static_cast<void>(connection_.flush());
        receive();
    } while (client::Clock::now() < when && !testing::Test::HasFailure());
}

void KillRun::receive() {
    std::vector<client::Response> responses;
    const auto received = connection_.receive(responses);
    for (const client::Response& response : responses) take(response);
    EXPECT_TRUE(received.ok()) << received.error().message;
}

void KillRun::take(const client::Response& response) {
    const auto found = flights_.find(response.request_id());
    if (found == flights_.end()) {
        ++report_.num_doubled;
        ADD_FAILURE() << "an answer behind the end of request " << response.request_id();
        return;
    }
    Flight& flight = found->second;
    const bool is_progress = response.has_chunk() || is_end(response);
    if (is_progress && flight.is_held_up) {
        flight.is_held_up = false;
        kill_->gaps_ms[found->first] = ms_between(kill_->at, client::Clock::now());
    }
    note(response, flight.reply);
    if (!is_end(response)) return;
    end(flight);
    flights_.erase(found);
}

void KillRun::end(const Flight& flight) {
    const Reply& expected = expected_[flight.template_index];
    ++report_.num_requests;
    if (!flight.reply.error.empty()) {
        ++report_.num_lost;
        ADD_FAILURE() << "lost: " << flight.reply.error;
    } else if (flight.reply.token_ids.size() > expected.token_ids.size()) {
        ++report_.num_doubled;
        ADD_FAILURE() << flight.reply.token_ids.size() << " tokens instead of "
                      << expected.token_ids.size();
    } else if (flight.reply != expected) {
        ++report_.num_changed;
        expect_same_bits({expected}, {flight.reply}, "a request through a kill");
    }
}

void KillRun::strike() {
    const auto status = asker_.status();
    ASSERT_TRUE(status.ok()) << status.error().message;
    if (wire_ != nullptr && random_() % 4 == 0) {
        strike_wire();
    } else if (host_ != nullptr && random_() % 3 == 0) {
        strike_host(status.value());
    } else {
        strike_workers(status.value());
    }
}

void KillRun::strike_workers(const client::Status& status) {
    std::vector<const client::Worker*> ffn;
    std::vector<const client::Worker*> attention;
    for (const client::Worker& worker : status.workers()) {
        (worker.role() == "ffn" ? ffn : attention).push_back(&worker);
    }
    const auto dice = random_() % 10;
    const bool is_both = dice == 0;
    const bool is_attention = dice % 2 == 1;
    std::vector<const client::Worker*> targets;
    if (!is_attention) targets.push_back(ffn[random_() % ffn.size()]);
    if (is_attention || is_both) targets.push_back(attention[random_() % attention.size()]);
    Kill kill;
    kill.times = is_both ? &report_.both : is_attention ? &report_.attention : &report_.ffn;
    for (const client::Worker* target : targets) {
        // Its successor has not started; to the kernel 0 is everybody here.
        if (target->pid() == 0) return;
        kill.pids.push_back(static_cast<pid_t>(target->pid()));
    }
    if (random_() % 10 < 3) {
        for (const pid_t pid : kill.pids) ::kill(pid, SIGSTOP);
        serve_until(client::Clock::now() + milliseconds(random_() % 30));
    }
    receive();
    kill.at = client::Clock::now();
    for (const pid_t pid : kill.pids) ::kill(pid, SIGKILL);
    report_.num_kills += kill.pids.size();
    // Of an attention worker its own sequences; of an FFN worker everybody's.
    kill.num_concerned = kill.times == &report_.attention
                             ? std::min<size_t>(targets[0]->num_sequences(), flights_.size())
                             : flights_.size();
    aim(std::move(kill));
}

void KillRun::strike_host(const client::Status& status) {
    Kill kill;
    kill.times = &report_.host;
    // Of its workers the leader sees the stand-ins.
    for (const client::Worker& worker : status.workers()) {
        if (!worker.host().empty()) kill.pids.push_back(static_cast<pid_t>(worker.pid()));
    }
    const std::vector<pid_t> workers = host_->worker_pids();
    const bool is_whole = random_() % 2 == 0;
    if (is_whole && !goes_on_without_host_) stop_sending();
    receive();
    kill.at = client::Clock::now();
    for (const pid_t pid : workers) ::kill(pid, SIGKILL);
    report_.num_kills += workers.size() + (is_whole ? 1 : 0);
    kill.num_concerned = flights_.size();
    aim(std::move(kill));
    if (!is_whole) return;
    host_->signal(SIGKILL);
    EXPECT_EQ(host_->wait_exit(), 128 + SIGKILL);
    serve_until(client::Clock::now() + milliseconds(random_() % 300));
    host_ = join();
}

void KillRun::strike_wire() {
    EXPECT_TRUE(wire_->link().cut());
    // What came before it.
    receive();
    Kill cut;
    cut.at = client::Clock::now();
    cut.times = &report_.wire;
    cut.num_concerned = flights_.size();
    ++report_.num_cuts;
    aim(std::move(cut));
    serve_until(client::Clock::now() + milliseconds(random_() % kCutMsMax));
    EXPECT_TRUE(wire_->link().mend());
}

// Without the host new requests are refused: those that were sent are to be in before.
void KillRun::stop_sending() {
    is_sending_ = false;
    const TimePoint deadline = client::Clock::now() + kPatience;
    while (client::Clock::now() < deadline && !testing::Test::HasFailure()) {
        serve_until(client::Clock::now() + milliseconds(1));
        const auto status = asker_.status();
        ASSERT_TRUE(status.ok()) << status.error().message;
        if (status.value().num_running() + status.value().num_queued() >= flights_.size()) return;
    }
    ADD_FAILURE() << "requests are not taken";
}

// From here on it is this kill that holds requests up.
void KillRun::aim(Kill kill) {
    kill.num_in_flight = flights_.size();
    for (auto& [id, flight] : flights_) flight.is_held_up = true;
    kill_ = std::move(kill);
}

bool KillRun::is_over() {
    if (!kill_->restart_ms) {
        const auto status = asker_.status();
        if (!status.ok()) return false;
        for (const client::Worker& worker : status.value().workers()) {
            if (worker.state() != "ready" ||
                std::count(kill_->pids.begin(), kill_->pids.end(), worker.pid()) > 0) {
                return false;
            }
        }
        kill_->restart_ms = ms_between(kill_->at, client::Clock::now());
        is_sending_ = true;
    }
    return kill_->gaps_ms.size() >= kill_->num_in_flight;
}

// Which requests were the killed worker's the client does not know; how many, the status told. They
// are those that went on last.
void KillRun::note_gaps() {
    if (kill_->restart_ms) kill_->times->restart_ms.push_back(*kill_->restart_ms);
    std::vector<double> gaps;
    for (const auto& [id, gap_ms] : kill_->gaps_ms) gaps.push_back(gap_ms);
    std::sort(gaps.begin(), gaps.end());
    if (gaps.empty()) return;
    if (kill_->num_concerned > 0) kill_->times->progress_ms.push_back(gaps.back());
    if (kill_->num_concerned < gaps.size()) {
        report_.others_gap_ms.push_back(gaps[gaps.size() - kill_->num_concerned - 1]);
    }
}

void KillRun::drain() {
    is_sending_ = false;
    const TimePoint deadline = client::Clock::now() + kPatience;
    while (!flights_.empty() && client::Clock::now() < deadline) {
        serve_until(client::Clock::now() + milliseconds(5));
        if (testing::Test::HasFailure()) break;
    }
    report_.num_lost += flights_.size();
    EXPECT_TRUE(flights_.empty()) << flights_.size() << " requests without an end";
}

}  // namespace afd::test
