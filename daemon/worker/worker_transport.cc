// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/worker_transport.h"

#include "proto/failure.h"
#include "schedule/shared_memory/attach.h"

namespace afd::daemon {

namespace {

UcxEnds& ucx_ends() {
    static UcxEnds ends;
    return ends;
}

Error no_ucx() {
    return unimplemented("transport = 'ucx': this worker was built without it");
}

}  // namespace

void set_ucx_ends(const UcxEnds& ends) {
    ucx_ends() = ends;
}

Result<std::unique_ptr<schedule::DispatchTransport>> attach_dispatch(const WorkerSetup& setup,
                                                                     WorkerControl& control,
                                                                     uint32_t session) {
    if (!control.welcome().has_ucx()) return schedule::attach_dispatch(setup.attach, session);
    if (ucx_ends().dispatch == nullptr) return no_ucx();
    return ucx_ends().dispatch(setup, control, session);
}

Result<std::unique_ptr<schedule::ReturnTransport>> attach_returns(const WorkerSetup& setup,
                                                                  WorkerControl& control,
                                                                  uint32_t rank) {
    if (!control.welcome().has_ucx()) return schedule::attach_returns(setup.attach, rank);
    if (ucx_ends().returns == nullptr) return no_ucx();
    return ucx_ends().returns(setup, control, rank);
}

}  // namespace afd::daemon
