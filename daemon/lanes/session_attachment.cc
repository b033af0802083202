// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/session_attachment.h"

#include "daemon/worker/worker_transport.h"
#include "schedule/shared_memory/attach.h"

namespace afd::daemon {

Result<SessionAttachment> SessionAttachment::make(const WorkerSetup& setup,
                                                  WorkerControl& control,
                                                  uint32_t session) {
    SessionAttachment made;
    if (setup.is_colocated) {
        AFD_ASSIGN(made.colocated, schedule::attach_colocated(setup.attach, session));
    } else {
        AFD_ASSIGN(made.transport, attach_dispatch(setup, control, session));
    }
    return made;
}

}  // namespace afd::daemon
