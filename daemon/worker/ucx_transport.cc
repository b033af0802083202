// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/ucx_transport.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "daemon/program/logging.h"
#include "schedule/ucx/ucx_crash_handlers.h"
#include "schedule/ucx/ucx_dispatch.h"
#include "schedule/ucx/ucx_return.h"

namespace afd::daemon {

namespace {

[[noreturn]] void end_of_stuck_ucx(const std::string& why) {
    log::error("{}; this worker ends, and its successor has another UCX", why);
    // No destructors: they wait for what does not come back.
    std::_Exit(kExitStuckUcx);
}

schedule::UcxConfig ucx_config(const control::Ucx& wanted) {
    schedule::UcxConfig config;
    config.transports = wanted.transports();
    config.devices = wanted.devices();
    config.host = wanted.host();
    config.port = static_cast<uint16_t>(wanted.first_port());
    config.last_port = static_cast<uint16_t>(wanted.last_port());
    config.near_by_memory = wanted.near_by_memory();
    config.end_stuck = end_of_stuck_ucx;
    return config;
}

schedule::UcxEndConfig end_config(const WorkerSetup& setup,
                                  WorkerControl& control,
                                  schedule::Role role,
                                  uint32_t index) {
    return {.role = role,
            .index = index,
            .instance_id = setup.attach.identity.instance_id,
            .epoch = control.welcome().ucx().epoch(),
            .book = control.places(),
            .control = setup.own_control.data(),
            .doorbell = setup.attach.own_doorbell};
}

Result<std::unique_ptr<schedule::DispatchTransport>> dispatch_over_ucx(const WorkerSetup& setup,
                                                                       WorkerControl& control,
                                                                       uint32_t session) {
    AFD_ASSIGN(auto worker, schedule::UcxWorker::make(ucx_config(control.welcome().ucx()), false));
    AFD_ASSIGN(
        auto made,
        schedule::UcxDispatch::make(end_config(setup, control, schedule::Role::kAttention, session),
                                    setup.layout,
                                    std::move(worker)));
    return std::unique_ptr<schedule::DispatchTransport>(std::move(made));
}

Result<std::unique_ptr<schedule::ReturnTransport>> returns_over_ucx(const WorkerSetup& setup,
                                                                    WorkerControl& control,
                                                                    uint32_t rank) {
    AFD_ASSIGN(auto worker,
               schedule::UcxWorker::make(
                   ucx_config(control.welcome().ucx()), true, setup.layout.geometry.num_sessions));
    const std::vector<std::byte> address = worker->address();
    AFD_ASSIGN(auto made,
               schedule::UcxReturn::make(end_config(setup, control, schedule::Role::kFfn, rank),
                                         setup.layout,
                                         std::move(worker)));
    control.listens(address);
    return std::unique_ptr<schedule::ReturnTransport>(std::move(made));
}

}  // namespace

void use_ucx() {
    schedule::remove_ucx_crash_handlers();
    set_ucx_ends({.dispatch = dispatch_over_ucx, .returns = returns_over_ucx});
}

}  // namespace afd::daemon
