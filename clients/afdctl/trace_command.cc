// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/afdctl/command.h"
#include "clients/afdctl/trace_file.h"
#include "clients/command_line.h"
#include "clients/exit_code.h"

namespace afd::client {

namespace {

// Workers of other hosts are not.
size_t num_traced(const Status& status) {
    return static_cast<size_t>(
        std::count_if(status.workers().begin(), status.workers().end(), [](const Worker& worker) {
            return worker.host().empty();
        }));
}

}  // namespace

int run_trace(const CommonOptions& common, const TraceOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    Result<TraceFile> created = TraceFile::create(options.output);
    if (!created.ok()) return report_failure(common, created.error(), false);
    TraceFile& file = created.value();

    const Cancellation& interrupt = interrupt_cancellation();
    const Result<Status> status = client->status(Client::kReplyTimeout, &interrupt);
    if (!status.ok()) {
        file.discard();
        return report_failure(common, status.error(), !client->is_silent());
    }
    const Result<> traced = client->trace(
        to_milliseconds(options.seconds),
        [&file](const TraceEvents& events) { file.add(events); },
        &interrupt);
    // What came is kept, whatever ended it; of a trace that was refused nothing came.
    Result<> closed;
    if (traced.ok() || file.has_begun()) {
        closed = file.close();
    } else {
        file.discard();
    }
    if (!traced.ok()) {
        if (!closed.ok()) print_error(closed.error());
        // The deadline is later than that at which afdd ends the trace.
        const bool is_reached =
            traced.error().code != Code::kDeadlineExceeded && !client->is_silent();
        const int failed = report_failure(common, traced.error(), is_reached);
        return interrupt.requested() ? kExitInterrupted : failed;
    }
    if (!closed.ok()) return report_failure(common, closed.error(), true);
    const size_t num_workers = std::max(num_traced(status.value()), file.num_workers());
    if (common.json) {
        const nlohmann::ordered_json object = {{"file", options.output},
                                               {"num_events", file.num_events()},
                                               {"num_lost", file.num_lost()},
                                               {"num_workers", num_workers}};
        std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
        std::cout << options.output << ": " << file.num_events() << " events of " << num_workers
                  << " workers, " << file.num_lost() << " lost; "
                  << (file.num_events() == 0 ? "nothing ran meanwhile\n"
                                             : "open it at ui.perfetto.dev\n");
    }
    return interrupt.requested() ? kExitInterrupted : kExitOk;
}

}  // namespace afd::client
