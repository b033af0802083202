// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/soak_run.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "tests/faults/fault_requests.h"
#include "tests/faults/quantile.h"

namespace afd::test {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr size_t kMeasuredInFlight = 6;
constexpr size_t kInFlightMax = 48;
constexpr double kMeasureSecondsMax = 60;
constexpr double kLoad = 0.8;

client::Clock::duration as_duration(double count) {
    return std::chrono::duration_cast<client::Clock::duration>(Seconds(count));
}

constexpr double kQuantiles[] = {0.5, 0.9, 0.99};

std::string percentiles(const std::vector<double>& ms) {
    return fmt::format(
        "{:.0f} / {:.0f} / {:.0f}", quantile(ms, 0.5), quantile(ms, 0.9), quantile(ms, 0.99));
}

std::string line_of(const char* name, const SoakTimes& times) {
    return fmt::format("{} first token {}, end {} (ms, median / p90 / p99), {} requests\n",
                       name,
                       percentiles(times.first_token_ms),
                       percentiles(times.end_ms),
                       times.end_ms.size());
}

// Of the times of one to those of the other.
std::string ratios(const std::vector<double>& ms, const std::vector<double>& other_ms) {
    std::string text;
    for (const double share : kQuantiles) {
        text += fmt::format(
            "{}{:.2f}", text.empty() ? "" : " / ", quantile(ms, share) / quantile(other_ms, share));
    }
    return text;
}

std::string ratio_line(const char* name, const SoakTimes& times, const SoakTimes& other) {
    return fmt::format("{} first token {}, end {}\n",
                       name,
                       ratios(times.first_token_ms, other.first_token_ms),
                       ratios(times.end_ms, other.end_ms));
}

}  // namespace

std::string SoakReport::text() const {
    std::string text = fmt::format("{:.1f} requests/s, {} requests, {} kills: {} wrong\n",
                                   requests_per_second,
                                   num_requests,
                                   num_kills,
                                   num_wrong);
    const bool has_control = !control_times[0].end_ms.empty();
    for (const int window : {0, 1}) {
        text += line_of(window == 0 ? "first window:" : "last  window:", old_times[window]);
        if (has_control) {
            text += line_of("     control:", control_times[window]);
            text += ratio_line("    old to new:", old_times[window], control_times[window]);
        }
        text += fmt::format("              afdd: {} descriptors, {} KiB, {} segments\n",
                            footprint[window].num_descriptors,
                            footprint[window].kib,
                            num_segments[window]);
    }
    text += ratio_line("last to first:", old_times[1], old_times[0]);
    return text;
}

SoakRun::Side::Side(const std::vector<client::Generate>& templates)
    : instance({"--attention-workers", "2", "--ffn-workers", "2"}),
      replies([&] {
          instance.wait_ready();
          return run_one_after_another(instance, templates);
      }()),
      connection(instance.open_connection()) {
    for (const Reply& reply : replies) EXPECT_EQ(reply.error, "");
}

SoakRun::SoakRun(const Settings& settings)
    : settings_(settings), random_(settings.seed), templates_(fault_requests()), old_(templates_) {}

SoakReport SoakRun::run() {
    const Footprint before = footprint_of(old_.instance.pid());
    const size_t num_segments_before = old_.instance.segments().size();
    const double measured = measure_rate();
    report_.requests_per_second =
        settings_.requests_per_second > 0 ? settings_.requests_per_second : kLoad * measured;
    std::cout << fmt::format(
                     "{:.1f} requests/s, of {:.1f}\n", report_.requests_per_second, measured)
              << std::flush;
    start_ = client::Clock::now();
    TimePoint end = start_ + as_duration(settings_.seconds);
    const auto interval = as_duration(1 / report_.requests_per_second);
    TimePoint next_send = start_;
    TimePoint next_kill = start_ + as_duration(settings_.kill_seconds / 2);
    TimePoint window_end = start_ + as_duration(settings_.window_seconds);
    bool is_first_over = false;
    while (client::Clock::now() < end && !testing::Test::HasFailure()) {
        receive_until(std::min({next_send, next_kill, end}));
        if (settings_.has_control) {
            const auto pause = take_turns();
            for (TimePoint* time : {&start_, &end, &next_send, &next_kill, &window_end}) {
                *time += pause;
            }
        }
        const TimePoint now = client::Clock::now();
        if (now >= next_kill) {
            kill_one();
            next_kill += as_duration(settings_.kill_seconds);
        }
        if (now >= next_send && flights_.size() < kInFlightMax) {
            send_one(times_at(now));
            next_send += interval;
        } else if (now >= next_send) {
            next_send = now + interval;
        }
        if (now >= window_end) {
            if (!std::exchange(is_first_over, true)) note_window(0);
            print_progress(now);
            window_end += as_duration(settings_.window_seconds);
        }
    }
    wait_for_flights();
    EXPECT_TRUE(flights_.empty()) << flights_.size() << " requests without an end";
    report_.num_wrong += flights_.size();
    old_.instance.wait_ready();
    end_control();
    turn_ = &old_;
    note_growth(before, num_segments_before);
    note_window(1);
    EXPECT_EQ(old_.instance.stop(), 0);
    return report_;
}

client::Clock::duration SoakRun::take_turns() {
    const TimePoint now = client::Clock::now();
    const bool is_in_window = window_of(now) >= 0;
    const auto turn = static_cast<uint64_t>(Seconds(now - start_).count() / turn_seconds());
    Side* const wanted = is_in_window && turn % 2 == 1 ? control_.get() : &old_;
    const bool must_start = is_in_window && control_ == nullptr;
    const bool must_end = !is_in_window && control_ != nullptr;
    if (wanted == turn_ && !must_start && !must_end) return {};
    wait_for_flights();
    turn_ = &old_;
    if (must_start) {
        control_ = std::make_unique<Side>(templates_);
        expect_same_bits(old_.replies, control_->replies, "a new instance");
    } else if (must_end) {
        end_control();
    } else {
        turn_ = wanted;
    }
    return client::Clock::now() - now;
}

double SoakRun::turn_seconds() const {
    return std::min(settings_.kill_seconds, settings_.window_seconds / 2);
}

void SoakRun::end_control() {
    if (control_ == nullptr) return;
    EXPECT_EQ(control_->instance.stop(), 0);
    control_.reset();
}

void SoakRun::wait_for_flights() {
    const TimePoint patience = client::Clock::now() + kPatience;
    while (!flights_.empty() && client::Clock::now() < patience) {
        receive_until(client::Clock::now() + std::chrono::milliseconds(5));
    }
}

double SoakRun::measure_rate() {
    const TimePoint start = client::Clock::now();
    const TimePoint end = start + as_duration(std::min(settings_.seconds / 3, kMeasureSecondsMax));
    while (client::Clock::now() < end) {
        while (flights_.size() < kMeasuredInFlight) send_one(nullptr);
        receive_until(client::Clock::now() + std::chrono::milliseconds(1));
    }
    const double took = Seconds(client::Clock::now() - start).count();
    const double rate = static_cast<double>(std::max<uint64_t>(report_.num_requests, 1)) / took;
    report_.num_requests = 0;
    return rate;
}

void SoakRun::print_progress(TimePoint now) {
    std::cout << fmt::format("{:.0f} s: end {} (ms, median / p90 / p99), {} requests\n",
                             Seconds(now - start_).count(),
                             percentiles(progress_ms_),
                             progress_ms_.size())
              << std::flush;
    progress_ms_.clear();
}

int SoakRun::window_of(TimePoint when) const {
    const double since_start = Seconds(when - start_).count();
    if (since_start < settings_.window_seconds) return 0;
    return since_start >= settings_.seconds - settings_.window_seconds ? 1 : -1;
}

SoakTimes* SoakRun::times_at(TimePoint when) {
    const int window = window_of(when);
    if (window < 0) return nullptr;
    return turn_ == &old_ ? &report_.old_times[window] : &report_.control_times[window];
}

void SoakRun::note_window(int window) {
    report_.footprint[window] = footprint_of(old_.instance.pid());
    report_.num_segments[window] = old_.instance.segments().size();
}

// The memory of the last two-phase round, say, is given back behind the last token.
void SoakRun::note_growth(const Footprint& before, size_t num_segments_before) {
    const TimePoint patience = client::Clock::now() + kPatience;
    do {
        receive_until(client::Clock::now() + std::chrono::milliseconds(20));
        const Footprint now = footprint_of(old_.instance.pid());
        report_.num_descriptors_more = now.num_descriptors - before.num_descriptors;
        report_.num_segments_more = static_cast<int64_t>(old_.instance.segments().size()) -
                                    static_cast<int64_t>(num_segments_before);
    } while ((report_.num_descriptors_more > 1 || report_.num_segments_more > 0) &&
             client::Clock::now() < patience);
}

void SoakRun::send_one(SoakTimes* times) {
    const size_t index = random_() % templates_.size();
    client::Request request;
    request.set_request_id(next_id_);
    *request.mutable_generate() = templates_[index];
    ASSERT_TRUE(turn_->connection.send(request).ok());
    Flight& flight = flights_[next_id_++];
    flight.template_index = index;
    flight.sent = client::Clock::now();
    flight.times = times;
}

void SoakRun::receive_until(TimePoint when) {
    do {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - client::Clock::now());
        client::Connection& connection = turn_->connection;
        pollfd ready{connection.fd(), connection.events(), 0};
        poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 10)));
        static_cast<void>(connection.flush());
        std::vector<client::Response> responses;
        const auto received = connection.receive(responses);
        for (const client::Response& response : responses) take(response);
        ASSERT_TRUE(received.ok()) << received.error().message;
    } while (client::Clock::now() < when);
}

void SoakRun::take(const client::Response& response) {
    const auto found = flights_.find(response.request_id());
    if (found == flights_.end()) {
        ++report_.num_wrong;
        ADD_FAILURE() << "an answer behind the end of request " << response.request_id();
        return;
    }
    Flight& flight = found->second;
    const double ms =
        std::chrono::duration<double, std::milli>(client::Clock::now() - flight.sent).count();
    const bool is_first = flight.reply.token_ids.empty();
    note(response, flight.reply);
    if (flight.times != nullptr && is_first && !flight.reply.token_ids.empty()) {
        flight.times->first_token_ms.push_back(ms);
    }
    if (!is_end(response)) return;
    ++report_.num_requests;
    progress_ms_.push_back(ms);
    if (flight.times != nullptr) flight.times->end_ms.push_back(ms);
    const Reply& expected = old_.replies[flight.template_index];
    if (flight.reply != expected) {
        ++report_.num_wrong;
        expect_same_bits({expected}, {flight.reply}, "a request of a long run");
    }
    flights_.erase(found);
}

void SoakRun::kill_one() {
    auto& victims = turn_->next_victims;
    if (victims.empty()) {
        victims = {{"attention", 0}, {"attention", 1}, {"ffn", 0}, {"ffn", 1}};
        std::shuffle(victims.begin(), victims.end(), random_);
    }
    const auto [role, index] = victims.back();
    victims.pop_back();
    const pid_t pid = turn_->instance.worker_pids(role)[index];
    // 0: the last one's successor has not started.
    if (pid == 0) return;
    send_signal(pid, SIGKILL);
    ++report_.num_kills;
}

}  // namespace afd::test
