// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerView: what afdd sees of its workers without asking them, in the segments that they write:
// heartbeats, what they counted, traces and contexts. What they say for themselves comes
// over the control channel, to the Supervisor.
//
// `index` is a session or a rank of the layout. Everything happens on afdd's loop thread.

#include <cstdint>
#include <vector>

#include "daemon/gateway/tracer.h"
#include "daemon/instance/instance_layout.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/context/heartbeat.h"

namespace afd::daemon {

class WorkerView {
  public:
    // REQUIRES: `layout` outlives it; its steps were taken before anything is looked at.
    explicit WorkerView(const InstanceLayout& layout) : layout_(layout) {}

    schedule::HeartbeatView heartbeat(control::Role role, uint32_t index) const;
    // Adds what the worker counted (metrics.h) to its status.
    void fill_metrics(control::Role role, uint32_t index, client::Worker& worker) const;
    // The trace rings of all workers.
    std::vector<TraceSource> trace_sources() const;
    // The role of a worker that a client names. Errors: kNotFound: no such worker, and which there
    // are.
    Result<control::Role> find(const client::GetContext& asked) const;
    // Its ScheduleContext.
    client::Context context(control::Role role, uint32_t index) const;

  private:
    schedule::ConstControlView control_of(bool is_ffn, uint32_t index) const;

    const InstanceLayout& layout_;
};

}  // namespace afd::daemon
