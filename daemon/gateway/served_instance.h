// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServedInstance: what the gateway needs of the program around it. Implemented by Afdd.

#include <string>

#include "daemon/metrics/hop_times.h"
#include "daemon/metrics/request_metrics.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class ServedInstance {
  public:
    virtual ~ServedInstance() = default;
    // Adds what others know: state (state_names.h), workers, waits, how experts are reached.
    virtual void fill_status(client::Status& status) const = 0;
    // Everything that is counted, as Prometheus' text. `status`: of the whole instance.
    virtual std::string metrics_text(const client::Status& status,
                                     const RequestMetrics& requests,
                                     const HopTimes& hops) const = 0;
    // A worker's ScheduleContext, after its run_flag was set as asked.
    // Errors: kNotFound: no such worker, and which there are.
    virtual Result<> answer_context(const client::GetContext& asked, client::Context& answer) = 0;
    // A client asks for other numbers of workers. Gateway::tell_change() and end_change() follow,
    // neither within this call. Errors: why it cannot begin; then nothing follows.
    virtual Result<> on_resize_asked(const client::Resize& asked) = 0;
    // A client asks for another afdd in the place of this one. As on_resize_asked().
    virtual Result<> on_upgrade_asked() = 0;
    // A client asks that the instance drains and exits.
    virtual void on_stop_asked() = 0;
    // The end of a Gateway::drain(): nothing is in flight.
    virtual void on_drained() = 0;
    // The end of a Gateway::leave_to(): nothing is left.
    virtual void on_departed() = 0;
    // The afdd before this one is there and runs what it has accepted.
    virtual bool has_predecessor() const = 0;
};

}  // namespace afd::daemon
