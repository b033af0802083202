// SPDX-License-Identifier: Apache-2.0
#pragma once

// Crew: the workers of an instance for one number of them, with all that is made for this number:
// layout, supervisor, and what is seen of them and counted. An instance has one; while a resize
// runs it has two, the one that serves and the one that is to.
//
// Everything happens on afdd's loop thread but place_experts() and create_segments().

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/afdd/metrics_view.h"
#include "daemon/afdd/worker_view.h"
#include "daemon/cluster/host_list.h"
#include "daemon/config/config.h"
#include "daemon/instance/instance_layout.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/loop/event_loop.h"
#include "daemon/supervisor/supervisor.h"
#include "daemon/supervisor/worker_door.h"
#include "proto/status.h"

namespace afd::daemon {

class Crew {
  public:
    // REQUIRES: `loop` and `setup` outlive it; the steps of `setup` were taken.
    Crew(EventLoop& loop, const InstanceSetup& setup, Config config)
        : loop_(loop), layout_(setup, std::move(config)), workers_(layout_) {}

    // Those of its layout, first.
    Result<> plan() { return layout_.plan(); }
    Result<> place_experts() { return layout_.place_experts(); }
    Result<InstanceMemory> memory() const { return layout_.memory(); }
    Result<> create_segments() { return layout_.create_segments(); }

    // Makes a supervisor, which starts nothing yet. Again only when all processes of the one before
    // are gone: its segments then have had workers. `hosts`: the other hosts of the layout; null:
    // there are none. REQUIRES: `door` and `hosts` outlive the crew.
    // Errors: those of Supervisor::create().
    Result<> hire(WorkerDoor& door, const std::string& worker_directory, const HostList* hosts);

    bool is_hired() const { return supervisor_ != nullptr; }
    // REQUIRES of these: hired.
    Supervisor& supervisor() const { return *supervisor_; }
    MetricsView& metrics() const { return *metrics_; }
    const WorkerView& workers() const { return workers_; }
    const InstanceLayout& layout() const { return layout_; }
    const Config& config() const { return layout_.config(); }

    // The level of all workers from now on, also of those that are hired later
    // (Supervisor::set_log_level()).
    void set_log_level(const std::string& level);
    const std::string& log_level() const { return log_level_; }

    // Goes on counting what `before`, whose processes are gone, has counted.
    void follow(const Crew& before);

    // crew_size_text() of it.
    std::string size_text() const;

  private:
    Supervisor::Plan supervisor_plan(const std::string& worker_directory, const HostList* hosts);

    EventLoop& loop_;
    InstanceLayout layout_;
    const WorkerView workers_;
    std::string log_level_;  // Empty: that of the configuration.
    std::unique_ptr<MetricsView> metrics_;
    std::unique_ptr<Supervisor> supervisor_;
};

// "3 attention and 2 ffn workers".
std::string crew_size_text(uint64_t num_attention, uint64_t num_ffn);

}  // namespace afd::daemon
