// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/link_reports.h"

#include <vector>

namespace afd::daemon {
namespace {

control::WorkerMessage message_of(const std::vector<schedule::LinkView>& views) {
    control::WorkerMessage message;
    for (const schedule::LinkView& view : views) {
        control::Link& link = *message.mutable_links()->add_links();
        link.set_is_open(view.is_open);
        link.set_is_near(view.is_near);
        link.set_latency_ns(view.latency_ns);
        link.set_bytes_per_s(view.bytes_per_s);
        link.set_bytes_sent(view.bytes_sent);
        link.set_bytes_received(view.bytes_received);
    }
    return message;
}

}  // namespace

LinkReports::LinkReports(WorkerControl& control, const schedule::DispatchTransport* transport)
    : control_(control) {
    if (transport == nullptr || transport->links().empty()) return;
    control_.set_report([transport] { return message_of(transport->links()); });
}

// The transport may end before the control thread does.
LinkReports::~LinkReports() {
    control_.set_report(nullptr);
}

}  // namespace afd::daemon
