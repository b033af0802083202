// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/session_attachment.h"

namespace afd::daemon {
namespace {

Result<schedule::Segment> attach_control(const WorkerSetup& setup, uint32_t session) {
    AFD_ASSIGN(schedule::Segment control,
               schedule::Segment::attach(schedule::segment_name(setup.attach.prefix,
                                                                schedule::Role::kAttention,
                                                                session,
                                                                schedule::SegmentKind::kControl),
                                         setup.layout.attention_control_bytes,
                                         schedule::Segment::Access::kReadWrite));
    AFD_ASSIGN(
        const schedule::SegmentHeader expected,
        schedule::make_segment_header(
            setup.layout.geometry, setup.attach.identity, schedule::Role::kAttention, session));
    AFD_TRY(schedule::check(schedule::ControlView(control.data()).read_only().header(), expected));
    return control;
}

}  // namespace

Result<SessionAttachment> SessionAttachment::make(const WorkerSetup& setup, uint32_t session) {
    SessionAttachment made;
    if (setup.is_colocated) {
        AFD_ASSIGN(made.control, attach_control(setup, session));
        made.view = schedule::ControlView(made.control.data());
    } else {
        AFD_ASSIGN(made.transport, schedule::ShmDispatchTransport::attach(setup.attach, session));
        made.view = made.transport->own_control();
    }
    return made;
}

}  // namespace afd::daemon
