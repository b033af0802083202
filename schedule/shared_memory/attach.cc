// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/attach.h"

#include "schedule/shared_memory/shm_transport.h"

namespace afd::schedule {
namespace {

// Callers hold interfaces. The names of shared memory end in this file, so that another transport
// is a change here and nowhere else.
template <typename Interface, typename Made>
Result<std::unique_ptr<Interface>> as(Result<std::unique_ptr<Made>> made) {
    if (!made.ok()) return made.error();
    return std::unique_ptr<Interface>(std::move(made).value());
}

}  // namespace

Result<std::unique_ptr<DispatchTransport>> attach_dispatch(const AttachConfig& config,
                                                           uint32_t session) {
    return as<DispatchTransport>(ShmDispatchTransport::attach(config, session));
}

Result<std::unique_ptr<ReturnTransport>> attach_returns(const AttachConfig& config, uint32_t rank) {
    return as<ReturnTransport>(ShmReturnTransport::attach(config, rank));
}

Result<std::unique_ptr<Endpoint>> attach_colocated(const AttachConfig& config, uint32_t session) {
    return as<Endpoint>(ShmEndpoint::attach(config, session));
}

Result<Segment> attach_own_control(const AttachConfig& config, Role role, uint32_t index) {
    return attach_control(config, role, index, Segment::Access::kReadWrite);
}

Result<Segment> attach_metrics(const AttachConfig& config, Role role, uint32_t index) {
    // Writable: the worker counts in it. It has no header to check; a wrong size is refused by
    // attach.
    return config.attach(segment_name(config.prefix, role, index, SegmentKind::kMetrics),
                         role == Role::kFfn ? config.layout.ffn_metrics_bytes
                                            : config.layout.attention_metrics_bytes,
                         Segment::Access::kReadWrite);
}

}  // namespace afd::schedule
