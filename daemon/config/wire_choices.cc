// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/wire_choices.h"

#include <string>

namespace afd::daemon {
namespace {

template <typename Wire, typename Choice>
constexpr Wire shifted(Choice choice) {
    // Value 0 of a protobuf enum means "not set", so ours are shifted by one. The asserts hold the
    // two lists together at their ends.
    return static_cast<Wire>(static_cast<int>(choice) + 1);
}

static_assert(shifted<control::Router>(schedule::RouterPlacement::kFfn) == control::ROUTER_FFN);
static_assert(shifted<control::SharedExperts>(SharedExperts::kAttention) ==
              control::SHARED_EXPERTS_ATTENTION);
static_assert(shifted<control::RowDtype>(schedule::RowDtype::kFp8) == control::ROW_DTYPE_FP8);
static_assert(shifted<control::FfnPolicy>(schedule::FfnPolicy::kGroups) ==
              control::FFN_POLICY_GROUPS);
static_assert(shifted<control::KvDtype>(ops::KvDtype::kInt8Channel) ==
              control::KV_DTYPE_INT8_CHANNEL);

template <typename Choice, typename Wire>
Result<Choice> unshifted(Wire wire, Wire last, const char* what) {
    // Protobuf keeps numbers that the enum does not name: a newer afdd may send one.
    if (wire >= 1 && wire <= last) return static_cast<Choice>(static_cast<int>(wire) - 1);
    return Error{Code::kDataLoss,
                 "afdd's Welcome has " + std::string(what) + " " +
                     std::to_string(static_cast<int>(wire)) + ", which is not known here"};
}

}  // namespace

control::Router to_wire(schedule::RouterPlacement router) {
    return shifted<control::Router>(router);
}

control::SharedExperts to_wire(SharedExperts side) {
    return shifted<control::SharedExperts>(side);
}

control::RowDtype to_wire(schedule::RowDtype dtype) {
    return shifted<control::RowDtype>(dtype);
}

control::FfnPolicy to_wire(schedule::FfnPolicy policy) {
    return shifted<control::FfnPolicy>(policy);
}

control::KvDtype to_wire(ops::KvDtype dtype) {
    return shifted<control::KvDtype>(dtype);
}

Result<schedule::RouterPlacement> from_wire(control::Router router) {
    return unshifted<schedule::RouterPlacement>(router, control::ROUTER_FFN, "router");
}

Result<SharedExperts> from_wire(control::SharedExperts side) {
    return unshifted<SharedExperts>(side, control::SHARED_EXPERTS_ATTENTION, "shared_experts");
}

Result<schedule::RowDtype> from_wire(control::RowDtype dtype) {
    return unshifted<schedule::RowDtype>(dtype, control::ROW_DTYPE_FP8, "dispatch_dtype");
}

Result<schedule::FfnPolicy> from_wire(control::FfnPolicy policy) {
    return unshifted<schedule::FfnPolicy>(policy, control::FFN_POLICY_GROUPS, "ffn_policy");
}

Result<ops::KvDtype> from_wire(control::KvDtype dtype) {
    return unshifted<ops::KvDtype>(dtype, control::KV_DTYPE_INT8_CHANNEL, "kv_dtype");
}

}  // namespace afd::daemon
