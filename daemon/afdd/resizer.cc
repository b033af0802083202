// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/resizer.h"

#include <utility>

#include "daemon/config/cpu_plan.h"
#include "daemon/instance/file_budget.h"
#include "daemon/instance/instance_memory.h"
#include "daemon/loop/descriptor_limit.h"
#include "daemon/options/resolved_config.h"
#include "daemon/program/logging.h"
#include "proto/failure.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

namespace {

// A worker leaves its loop at the next step. One that takes longer is killed, which costs its
// requests nothing but the step: everybody waits for the last of them.
constexpr uint64_t kEndGraceMs = 1000;

constexpr uint64_t kLookMs = 10;

// Beside those of the workers.
constexpr size_t kFilesToSpare = 16;

Error ending_before_the_move() {
    return unavailable("afdd began to end before the resize had moved requests");
}

// So many would start at once that nobody, afdd neither, got a core for long.
Result<> check_cores(uint64_t num_workers) {
    constexpr uint64_t kWorkersPerCoreMax = 32;
    const uint64_t num_cores = allowed_cpus().size();
    if (num_workers <= kWorkersPerCoreMax * num_cores) return {};
    return invalid_argument(
        "{} workers on {} cores: a resize starts at most {} for each core; give fewer, or start "
        "the instance anew with so many",
        with(num_workers, num_cores, kWorkersPerCoreMax));
}

}  // namespace

Resizer::Resizer(EventLoop& loop, std::unique_ptr<Crew>& crew, Surroundings surroundings)
    : loop_(loop),
      crew_(crew),
      surroundings_(std::move(surroundings)),
      gateway_(*surroundings_.gateway),
      next_turn_(loop, [this] { go_on(); }),
      look_timer_(loop, [this] { go_on(); }) {}

Result<> Resizer::begin(const client::Resize& asked) {
    AFD_TRY(check_idle());
    AFD_TRY(check_possible());
    const Config& now = crew_->config();
    const uint64_t num_attention =
        asked.attention_workers() == 0 ? now.attention_workers : asked.attention_workers();
    const uint64_t num_ffn = asked.ffn_workers() == 0 ? now.ffn_workers : asked.ffn_workers();
    AFD_ASSIGN(Config config, with_workers(now, num_attention, num_ffn));
    const bool is_same = num_attention == now.attention_workers && num_ffn == now.ffn_workers;
    std::unique_ptr<Crew> other;
    if (!is_same) {
        AFD_TRY(check_files(config));
        AFD_TRY(check_cores(num_attention + num_ffn));
        other = std::make_unique<Crew>(loop_, crew_->layout().setup(), std::move(config));
        other->set_log_level(crew_->log_level());
        AFD_TRY(other->plan());
    }
    // From here on the rest is told later.
    other_ = std::move(other);
    stop_first_ = asked.stop_first();
    is_cancelled_ = false;
    error_.reset();
    target_ = crew_size_text(num_attention, num_ffn);
    began_us_ = schedule::steady_now_us();
    still_since_us_ = 0;
    num_replays_before_ = gateway_.requests().num_replays;
    step_ = Step::kLaying;
    if (is_same) {
        next_turn_.ask();
        return {};
    }
    log::info("resize: from {} to {}", crew_->size_text(), target_);
    if (thread_ == nullptr) thread_ = std::make_unique<BackgroundThread>(loop_);
    job_ = thread_->run([this] { laid_ = lay(); }, [this] { go_on(); });
    return {};
}

Result<> Resizer::check_possible() const {
    const Config& config = crew_->config();
    if (config.colocated()) {
        return failed_precondition(
            "topology = colocated: its attention workers have the experts, too; start afdd again "
            "with other numbers");
    }
    if (!config.spawn) {
        return failed_precondition(
            "spawn = false: the workers are started by hand; start afdd again with other numbers");
    }
    if (!crew_->supervisor().is_all_ready()) {
        return failed_precondition(
            "not every worker has been ready yet; try again when afdctl status says ready");
    }
    return {};
}

Result<> Resizer::check_files(const Config& config) const {
    const size_t num_workers = config.num_attention_workers() + config.num_ffn_workers();
    const size_t num_files = num_workers * (kFilesOfPlace + kFilesOfProcess) + kFilesToSpare;
    if (const size_t num_free = num_free_descriptors(); num_free < num_files) {
        return resource_exhausted(
            "{} more files must be open while {} workers start beside those that serve, and {} "
            "can be: raise the limit of open files (ulimit -n), or let fewer clients connect",
            with(num_files, num_workers, num_free));
    }
    return {};
}

Result<> Resizer::check_idle() const {
    if (!is_on()) return {};
    return failed_precondition(
        "a resize to {} is under way; try again when it has ended (afdctl status)", with(target_));
}

std::string Resizer::text() const {
    const char* what = "";
    switch (step_) {
        case Step::kNone:
        case Step::kAbandoned:
            return "";
        case Step::kLaying:
            what = "experts are placed, segments are made";
            break;
        case Step::kStarting:
        case Step::kStartingAlone:
            what = "workers start";
            break;
        case Step::kEnding:
            what = "requests are moved";
            break;
        case Step::kUndoing:
        case Step::kGoingBack:
            what = "it is undone";
            break;
    }
    return "to " + target_ + ": " + what;
}

// On the thread.
Result<> Resizer::lay() {
    AFD_TRY(other_->place_experts());
    if (!stop_first_) AFD_TRY(check_room());
    return other_->create_segments();
}

// What is certain not to be there. What else is missing the workers will tell.
Result<> Resizer::check_room() const {
    AFD_ASSIGN(const InstanceMemory memory, other_->memory());
    return check_room_for(memory,
                          " beside those that serve",
                          "with --stop-first those end before, and requests stand still until the "
                          "new ones are ready");
}

void Resizer::on_laid() {
    job_.reset();
    if (!laid_.ok()) {
        fail(laid_.error());
    } else if (is_cancelled_) {
        fail(ending_before_the_move());
    } else if (const Result<> started = start_other(); !started.ok()) {
        fail(started.error());
    }
}

Result<> Resizer::start_other() {
    AFD_TRY(other_->hire(*surroundings_.door, surroundings_.worker_directory, nullptr));
    if (stop_first_) {
        end_serving();
        return {};
    }
    step_ = Step::kStarting;
    tell("starting " + target_ + " beside " + crew_->size_text());
    if (step_ == Step::kStarting) other_->supervisor().start(*this, *this);
    return {};
}

void Resizer::on_all_ready() {
    if (step_ == Step::kStarting) next_turn_.ask();
}

// Each was ready once, and one dies again and again.
void Resizer::on_service(const ServiceState& state) {
    if (state.level != ServiceState::Level::kReady) on_given_up(state.reason);
}

void Resizer::on_given_up(const std::string& why) {
    if (step_ != Step::kStarting) return;
    undo(unavailable("the new workers cannot start: {}; {} serve on",
                     with(why, crew_->size_text())));
}

void Resizer::undo(const Error& error) {
    error_ = error;
    step_ = Step::kUndoing;
    other_->supervisor().shut_down(0);
}

void Resizer::on_all_gone() {
    if (step_ == Step::kAbandoned) {
        surroundings_.instance->on_all_gone();
    } else {
        next_turn_.ask();
    }
}

bool Resizer::on_serving_ready() {
    if (step_ != Step::kStartingAlone) return false;
    next_turn_.ask();
    return true;
}

bool Resizer::on_serving_gone() {
    if (step_ != Step::kEnding && step_ != Step::kGoingBack) return false;
    next_turn_.ask();
    return true;
}

bool Resizer::on_serving_given_up(const std::string& why) {
    if (step_ == Step::kGoingBack) return true;
    if (step_ != Step::kStartingAlone) return false;
    step_ = Step::kGoingBack;
    error_ = unavailable(
        "the new workers cannot start: {}; {} start again, and requests go on with them",
        with(why, other_->size_text()));
    tell("starting " + other_->size_text() + " again");
    gateway_.stand_still();
    crew_->supervisor().shut_down(0);
    return true;
}

// In a turn of its own, because whoever calls back must not find its supervisor destroyed.
// Something else may have happened since it was asked for: a drain.
void Resizer::go_on() {
    switch (step_) {
        case Step::kLaying:
            // The same numbers: there is nothing to do.
            other_ == nullptr ? succeed() : on_laid();
            return;
        case Step::kStarting:
            // One may have died since it was ready: the old ones serve until it is back.
            other_->supervisor().is_complete() ? end_serving() : look_timer_.start(kLookMs);
            return;
        case Step::kEnding:
            if (!crew_->supervisor().has_processes()) change_over();
            return;
        case Step::kUndoing:
            if (!has_processes()) fail(*error_);
            return;
        case Step::kStartingAlone:
            succeed();
            return;
        case Step::kGoingBack:
            if (!crew_->supervisor().has_processes()) go_back();
            return;
        case Step::kNone:
        case Step::kAbandoned:
            return;
    }
}

void Resizer::end_serving() {
    step_ = Step::kEnding;
    tell("ending " + crew_->size_text() + ", and moving requests");
    if (step_ != Step::kEnding) return;
    gateway_.stand_still();
    still_since_us_ = schedule::steady_now_us();
    num_replays_before_ = gateway_.requests().num_replays;
    crew_->supervisor().shut_down(kEndGraceMs);
}

void Resizer::change_over() {
    other_->follow(*crew_);
    gateway_.go_on(other_->config().num_attention_workers(), other_->workers().trace_sources());
    if (step_ != Step::kEnding) return;
    // Whatever the old workers could not do is over.
    gateway_.set_service({});
    std::swap(crew_, other_);
    if (!stop_first_) {
        crew_->supervisor().hand_over(gateway_, *surroundings_.instance);
        succeed();
        return;
    }
    step_ = Step::kStartingAlone;
    crew_->supervisor().start(gateway_, *surroundings_.instance);
    if (step_ == Step::kStartingAlone) tell("starting " + target_);
}

void Resizer::go_back() {
    // Its segments are as it left them, so this is a restart of all of its workers at once.
    const Result<> hired =
        other_->hire(*surroundings_.door, surroundings_.worker_directory, nullptr);
    if (!hired.ok()) {
        step_ = Step::kNone;
        surroundings_.instance->on_given_up(hired.error().message);
        return;
    }
    other_->follow(*crew_);
    gateway_.go_on(other_->config().num_attention_workers(), other_->workers().trace_sources());
    if (step_ != Step::kGoingBack) return;
    gateway_.set_service({});
    std::swap(crew_, other_);
    crew_->supervisor().start(gateway_, *surroundings_.instance);
    fail(*error_);
}

void Resizer::succeed() {
    const uint64_t now_us = schedule::steady_now_us();
    client::Response response;
    client::Resized& resized = *response.mutable_resized();
    resized.set_attention_workers(crew_->config().num_attention_workers());
    resized.set_ffn_workers(crew_->config().num_ffn_workers());
    resized.set_stood_still_us(still_since_us_ == 0 ? 0 : now_us - still_since_us_);
    resized.set_total_us(now_us - began_us_);
    resized.set_num_replays(gateway_.requests().num_replays - num_replays_before_);
    log::info("resize: {} serve now; {} requests stood still for {} ms",
              target_,
              resized.num_replays(),
              resized.stood_still_us() / 1000);
    come_to_end();
    gateway_.end_change(response);
}

void Resizer::fail(const Error& error) {
    log::error("resize to {}: {}", target_, error.message);
    come_to_end();
    gateway_.end_change(error);
}

void Resizer::come_to_end() {
    step_ = Step::kNone;
    other_.reset();
    crew_->layout().setup().cores().hold(crew_->layout().cpus());
    surroundings_.on_end();
}

// May end the instance, as all that lets the gateway settle: a drain has waited for an answer to be
// sent. Then the step is kAbandoned.
void Resizer::tell(const std::string& text) {
    log::info("resize: {}", text);
    gateway_.tell_change(text);
}

void Resizer::cancel() {
    is_cancelled_ = true;
    if (step_ != Step::kStarting) return;
    undo(ending_before_the_move());
}

void Resizer::shut_down(uint64_t grace_ms) {
    if (!is_on()) return;
    if (step_ != Step::kAbandoned) {
        step_ = Step::kAbandoned;
        gateway_.end_change(unavailable("afdd is ending"));
    }
    if (has_processes()) other_->supervisor().shut_down(grace_ms);
}

bool Resizer::has_processes() const {
    return other_ != nullptr && other_->is_hired() && other_->supervisor().has_processes();
}

void Resizer::set_log_level(const std::string& level) {
    if (other_ != nullptr) other_->set_log_level(level);
}

}  // namespace afd::daemon
