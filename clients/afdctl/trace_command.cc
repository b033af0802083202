// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/afdctl/command.h"
#include "clients/afdctl/trace_file.h"
#include "clients/exit_code.h"

namespace afd::client {

int run_trace(const CommonOptions& common, const TraceOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    Result<TraceFile> created = TraceFile::create(options.output);
    if (!created.ok()) return report_failure(common, created.error(), false);
    TraceFile& file = created.value();

    const Cancellation& interrupt = interrupt_cancellation();
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
        // The deadline is later than that at which afdd ends the trace.
        const bool is_reached =
            traced.error().code != Code::kDeadlineExceeded && !client->is_silent();
        return report_failure(common, traced.error(), is_reached);
    }
    if (!closed.ok()) return report_failure(common, closed.error(), true);
    if (common.json) {
        const nlohmann::ordered_json object = {{"file", options.output},
                                               {"num_events", file.num_events()},
                                               {"num_lost", file.num_lost()},
                                               {"num_workers", file.num_workers()}};
        std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
        std::cout << options.output << ": " << file.num_events() << " events of "
                  << file.num_workers() << " workers, " << file.num_lost()
                  << " lost; open it at ui.perfetto.dev\n";
    }
    return interrupt.requested() ? kExitInterrupted : kExitOk;
}

}  // namespace afd::client
