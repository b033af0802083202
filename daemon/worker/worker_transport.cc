// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/worker_transport.h"

#include "proto/failure.h"
#include "schedule/shared_memory/attach.h"
#ifdef AFD_HAS_UCX
#include "schedule/ucx/ucx_dispatch.h"
#include "schedule/ucx/ucx_return.h"
#endif

namespace afd::daemon {

#ifdef AFD_HAS_UCX

namespace {

schedule::UcxConfig ucx_config(const control::Ucx& wanted) {
    schedule::UcxConfig config;
    config.transports = wanted.transports();
    config.devices = wanted.devices();
    config.host = wanted.host();
    // Of shared memory alone nobody hears that a peer is gone.
    config.tells_failures = wanted.transports().find("tcp") != std::string::npos ||
                            wanted.transports().find("rc") != std::string::npos;
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
    return std::unique_ptr<schedule::DispatchTransport>(
        schedule::UcxDispatch::make(end_config(setup, control, schedule::Role::kAttention, session),
                                    setup.layout,
                                    std::move(worker)));
}

Result<std::unique_ptr<schedule::ReturnTransport>> returns_over_ucx(const WorkerSetup& setup,
                                                                    WorkerControl& control,
                                                                    uint32_t rank) {
    AFD_ASSIGN(auto worker, schedule::UcxWorker::make(ucx_config(control.welcome().ucx()), true));
    const std::vector<std::byte> address = worker->address();
    auto made = schedule::UcxReturn::make(
        end_config(setup, control, schedule::Role::kFfn, rank), setup.layout, std::move(worker));
    control.listens(address);
    return std::unique_ptr<schedule::ReturnTransport>(std::move(made));
}

}  // namespace

#else

namespace {

Error no_ucx() {
    return unimplemented("transport = 'ucx': this worker was built without it");
}

Result<std::unique_ptr<schedule::DispatchTransport>> dispatch_over_ucx(const WorkerSetup&,
                                                                       WorkerControl&,
                                                                       uint32_t) {
    return no_ucx();
}

Result<std::unique_ptr<schedule::ReturnTransport>> returns_over_ucx(const WorkerSetup&,
                                                                    WorkerControl&,
                                                                    uint32_t) {
    return no_ucx();
}

}  // namespace

#endif

Result<std::unique_ptr<schedule::DispatchTransport>> attach_dispatch(const WorkerSetup& setup,
                                                                     WorkerControl& control,
                                                                     uint32_t session) {
    if (control.welcome().has_ucx()) return dispatch_over_ucx(setup, control, session);
    return schedule::attach_dispatch(setup.attach, session);
}

Result<std::unique_ptr<schedule::ReturnTransport>> attach_returns(const WorkerSetup& setup,
                                                                  WorkerControl& control,
                                                                  uint32_t rank) {
    if (control.welcome().has_ucx()) return returns_over_ucx(setup, control, rank);
    return schedule::attach_returns(setup.attach, rank);
}

}  // namespace afd::daemon
