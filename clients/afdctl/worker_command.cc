// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "clients/afdctl/command.h"
#include "clients/exit_code.h"
#include "clients/interrupt.h"
#include "proto/state_names.h"

namespace afd::client {
namespace {

constexpr int kLookMs = 10;

// Of a worker in this state, between its name and "not yet ready": " is starting and".
std::string what_it_is(const std::string& state) {
    return state == kWorkerNoHost ? " waits for its host, which has not joined, and is"
                                  : " is " + state + " and";
}

// One worker of the instance, and what is asked of it.
class WorkerSwitch {
  public:
    WorkerSwitch(Client& client, GetContext worker, Clock::time_point deadline)
        : client_(client), worker_(std::move(worker)), deadline_(deadline) {}

    std::string name() const { return worker_.role() + std::to_string(worker_.index()); }

    // Ends it, and returns when its process is gone: others go on with what it had in work.
    Result<> drain() {
        AFD_TRY(set_run_flag(false));
        return wait_until(kWorkerHalted);
    }
    // Ends it, and returns when another has taken its place and serves. Whatever comes in between,
    // the place is free for the other one, or the error says that it may not be.
    Result<> restart() {
        Result<> done = drain();
        if (done.ok()) done = set_run_flag(true);
        if (!done.ok()) return may_be_halted_ ? freed(done.error()) : done;
        return wait_until(kWorkerReady);
    }

  private:
    Result<> set_run_flag(bool run_flag) {
        worker_.set_run_flag(run_flag);
        const Result<Context> answer =
            client_.context(worker_, Client::kReplyTimeout, &interrupt_cancellation());
        if (answer.ok()) {
            may_be_halted_ = !run_flag;
            return {};
        }
        // Where no answer came, the flag may be set all the same.
        const Code code = answer.error().code;
        const bool is_refused = code == Code::kNotFound || code == Code::kFailedPrecondition;
        if (!is_refused) may_be_halted_ = true;
        return answer.error();
    }

    // `why`, after a last try that no interrupt ends: it has been heard.
    afd::Error freed(afd::Error why) {
        worker_.set_run_flag(true);
        if (client_.context(worker_, Client::kReplyTimeout).ok()) {
            why.message += "; the run_flag of " + name() +
                           " is 1 again, so another takes its place when it has ended";
        } else {
            why.message +=
                "; the run_flag of " + name() +
                " could not be set to 1 again, and until it is the worker stays away; go on "
                "with afdctl restart-worker --worker " +
                name();
        }
        return why;
    }

    Result<> wait_until(std::string_view state) {
        while (true) {
            std::string seen = "unknown";
            AFD_ASSIGN(const Status status,
                       client_.status(Client::kReplyTimeout, &interrupt_cancellation()));
            for (const Worker& worker : status.workers()) {
                if (worker.role() != worker_.role() || worker.index() != worker_.index()) continue;
                seen = worker.state();
            }
            if (seen == state) return {};
            // However short the time, the error says what the worker is.
            if (Clock::now() >= deadline_) {
                return afd::Error{
                    Code::kDeadlineExceeded,
                    name() + what_it_is(seen) + " not yet " + std::string(state) + " (--timeout)"};
            }
            pollfd interrupt = {interrupt_cancellation().fd(), POLLIN, 0};
            poll(&interrupt, 1, kLookMs);
        }
    }

    Client& client_;
    GetContext worker_;
    const Clock::time_point deadline_;
    bool may_be_halted_ = false;  // By this command.
};

Result<std::vector<GetContext>> named_workers(const WorkerOptions& options) {
    std::vector<GetContext> named;
    for (const std::string& worker : options.workers) {
        AFD_ASSIGN(named.emplace_back(), parse_worker(worker));
    }
    return named;
}

// FFN workers first, since every session waits for them.
Result<std::vector<GetContext>> all_workers(Client& client) {
    std::vector<GetContext> chosen;
    AFD_ASSIGN(const Status status,
               client.status(Client::kReplyTimeout, &interrupt_cancellation()));
    for (const char* role : {"ffn", "attention"}) {
        for (const Worker& worker : status.workers()) {
            if (worker.role() != role) continue;
            chosen.emplace_back().set_role(worker.role());
            chosen.back().set_index(worker.index());
        }
    }
    return chosen;
}

void print_done(const CommonOptions& common, const std::string& name, const std::string& done) {
    if (common.json) {
        std::cout << nlohmann::json{{"worker", name}, {"state", done}}.dump() << std::endl;
    } else {
        std::cout << name << " " << done << std::endl;
    }
}

// A hint; the workers are drained whatever comes of it.
void warn_if_halted(Client& client) {
    const Result<Status> status = client.status(Client::kReplyTimeout, &interrupt_cancellation());
    if (!status.ok() || status.value().state() != kInstanceHalted) return;
    std::cerr << "warning: nobody is served now, and requests wait: " << status.value().reason()
              << std::endl;
}

int run(const CommonOptions& common, const WorkerOptions& options, bool comes_back) {
    auto workers = named_workers(options);
    if (!workers.ok()) return report_failure(common, workers.error(), false);
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    if (comes_back) {
        interrupt_cancellation();  // It takes Ctrl-C first.
        cancel_on_termination();
    }
    if (options.all) workers = all_workers(*client);
    if (!workers.ok()) return report_failure(common, workers.error(), !client->is_silent());
    for (const GetContext& worker : workers.value()) {
        WorkerSwitch one(*client, worker, deadline_after(to_milliseconds(options.timeout_s)));
        const Result<> done = comes_back ? one.restart() : one.drain();
        if (!done.ok()) return report_failure(common, done.error(), !client->is_silent());
        print_done(common, one.name(), comes_back ? "restarted" : "drained");
    }
    if (!comes_back) warn_if_halted(*client);
    return kExitOk;
}

}  // namespace

int run_drain_worker(const CommonOptions& common, const WorkerOptions& options) {
    return run(common, options, false);
}

int run_restart_worker(const CommonOptions& common, const WorkerOptions& options) {
    return run(common, options, true);
}

}  // namespace afd::client
