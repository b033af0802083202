// SPDX-License-Identifier: Apache-2.0
//
// afd-load: measures the speed and latencies of a running afdd, or of another server over HTTP.
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "clients/afd_client.h"
#include "clients/exit_code.h"
#include "clients/interrupt.h"
#include "clients/load/http_door.h"
#include "clients/load/level_run.h"
#include "clients/load/level_table.h"
#include "clients/load/load_options.h"
#include "clients/load/machine.h"
#include "clients/load/progress_line.h"
#include "clients/load/result_file.h"
#include "clients/load/socket_door.h"
#include "proto/standard_descriptors.h"

namespace afd::client {
namespace {

// What the levels share.
struct Session {
    std::unique_ptr<Door> door;
    const Cancellation& cancellation;
    uint64_t next_request_id = 1;
};

LevelResult run_level(Session& session, const LoadOptions& options, const Level& level) {
    ProgressLine progress_line;
    LevelRun run(*session.door, options.workload, level, options.extent, options.request_timeout);
    return run.run(session.next_request_id, session.cancellation, [&](const LevelProgress& now) {
        progress_line.show(progress_text(level, now));
    });
}

// Requests that are not measured. Errors: the first failure, with its request's reason.
Result<> warm_up(Session& session, const LoadOptions& options) {
    if (options.num_warmup == 0) return {};
    const uint32_t concurrency = std::max(1u, options.levels.front().concurrency);
    LevelExtent extent;
    extent.num_requests = options.num_warmup;
    ProgressLine progress_line;
    progress_line.show("warming up");
    LevelRun run(
        *session.door, options.workload, {concurrency, 0}, extent, options.request_timeout);
    const LevelResult result = run.run(session.next_request_id, session.cancellation, nullptr);
    const auto errors = result.errors();
    if (errors.empty()) return {};
    const auto& [kind, group] = *errors.begin();
    return afd::Error{
        group.code,
        "a warm-up request failed, so nothing was measured: " + kind + ": " + group.sample};
}

int exit_code_of(const LoadReport& report) {
    uint64_t num_requests = 0;
    uint64_t num_failed = 0;
    bool is_interrupted = false;
    bool is_broken = false;
    bool is_saturated = false;
    for (const LevelResult& level : report.levels) {
        num_requests += level.requests.size();
        num_failed += level.num_with(Outcome::kFailed);
        is_interrupted = is_interrupted || level.interrupted;
        is_broken = is_broken || !level.broken.empty();
        is_saturated = is_saturated || !level.saturation().empty();
    }
    if (is_interrupted) return kExitInterrupted;
    const double allowed = report.options.failed_ratio_max * static_cast<double>(num_requests);
    if (is_broken || static_cast<double>(num_failed) > allowed) return kExitFailed;
    return report.options.strict && is_saturated ? kExitSaturated : kExitOk;
}

// Runs the levels until the last, an interrupt or the end of the connection.
void run_levels(Session& session, LoadReport& report) {
    const bool prints_table = !report.options.json;
    if (prints_table) std::cout << level_table_header() << std::flush;
    for (const Level& level : report.options.levels) {
        report.levels.push_back(run_level(session, report.options, level));
        const LevelResult& result = report.levels.back();
        if (prints_table) std::cout << level_table_row(result) << std::flush;
        if (result.interrupted || !result.broken.empty()) break;
    }
}

int finish(const LoadReport& report) {
    std::ostream& notes = report.options.json ? std::cerr : std::cout;
    if (report.options.json) std::cout << result_json(report);
    notes << run_summary(report.levels);
    const Result<> written = write_result_files(report);
    if (!written.ok()) {
        print_error(written.error());
        return kExitFailed;
    }
    notes << "wrote " << report.options.out_dir << "/result.json and requests.csv" << std::endl;
    return exit_code_of(report);
}

Result<Session> open_http_session(const LoadOptions& options,
                                  const Cancellation& cancellation,
                                  LoadReport& report) {
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(options.request_timeout);
    AFD_ASSIGN(report.http_server,
               inspect_target(options.http, options.workload, timeout, cancellation));
    AFD_ASSIGN(std::unique_ptr<HttpDoor> door, HttpDoor::create(*report.http_server));
    return Session{std::move(door), cancellation};
}

// The session, and what the server says of itself, which also tells that it answers.
Result<Session> open_session(const LoadOptions& options,
                             const Cancellation& cancellation,
                             LoadReport& report) {
    if (!options.http.url.empty()) return open_http_session(options, cancellation, report);
    AFD_ASSIGN(const Endpoint endpoint, options.endpoint.resolve());
    AFD_ASSIGN(Client client, Client::connect(endpoint));
    AFD_ASSIGN(report.server, client.status());
    AFD_ASSIGN(Connection connection,
               Connection::connect(endpoint, deadline_after(Client::kReplyTimeout)));
    return Session{std::make_unique<SocketDoor>(std::move(connection)), cancellation};
}

// Of a run that got no session. A server of the OpenAI API that refuses (4xx) has been reached.
int exit_code_of(const afd::Error& error, bool is_http) {
    switch (error.code) {
        case Code::kCancelled:
            return kExitInterrupted;
        case Code::kInvalidArgument:
            return kExitUsage;
        case Code::kPermissionDenied:
        case Code::kFailedPrecondition:
            return is_http ? kExitFailed : kExitUnreachable;
        default:
            return kExitUnreachable;
    }
}

int run(int argc, char** argv) {
    int exit_code = kExitOk;
    std::optional<LoadOptions> options = parse_load_options(argc, argv, exit_code);
    if (!options) return exit_code;
    const Result<Cancellation> cancellation = Cancellation::create();
    if (!cancellation.ok()) {
        print_error(cancellation.error());
        return kExitFailed;
    }
    cancel_on_interrupt(cancellation.value());
    cancel_on_termination();
    // The kernel's default of 50 us would show in the lag of an open loop.
    prctl(PR_SET_TIMERSLACK, 1000UL);

    LoadReport report;
    Result<Session> session = open_session(*options, cancellation.value(), report);
    if (!session.ok()) {
        print_error(session.error());
        return exit_code_of(session.error(), !options->http.url.empty());
    }
    if (const Result<> warmed = warm_up(session.value(), *options); !warmed.ok()) {
        print_error(warmed.error());
        return kExitFailed;
    }
    if (cancellation.value().requested()) return kExitInterrupted;
    if (const Result<> prepared = prepare_result_directory(options->out_dir); !prepared.ok()) {
        print_error(prepared.error());
        return kExitUsage;
    }
    report.options = std::move(*options);
    report.machine = this_machine();
    report.started_at = std::chrono::system_clock::now();
    run_levels(session.value(), report);
    return finish(report);
}

}  // namespace
}  // namespace afd::client

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    // Writing beyond the limit of a file's size is then an error, EFBIG, with a message.
    ::signal(SIGXFSZ, SIG_IGN);
    return afd::client::end_output(afd::client::run(argc, argv));
}
