// SPDX-License-Identifier: Apache-2.0
#pragma once

// The choices of the configuration that are words: an enum each, named once. What schedule/ works
// with has its enum there (RouterPlacement, RowDtype, FfnPolicy); these are afdd's own.

#include <string_view>

namespace afd::daemon {

// Where the experts are.
enum class Topology { kDisaggregated, kColocated };
// How prompts get to the FFN workers.
enum class Dispatch { kAuto, kWindow, kTwoPhase };
// Over what rows travel between workers.
enum class Transport { kSharedMemory, kUcx };
// With messages of UCX: how workers of one host talk.
enum class Neighbours { kMemory, kUcx };
// Which side computes the shared experts.
enum class SharedExperts { kFfn, kAttention };
// How much KV room a request reserves before it runs: a step beyond its tokens, or all that it may
// come to need.
enum class KvReserve { kGrow, kWhole };
// Whose names metrics have beside ours.
enum class MetricsCompat { kNone, kVllm };

constexpr std::string_view name_of(Topology topology) {
    return topology == Topology::kColocated ? "colocated" : "disaggregated";
}

constexpr std::string_view name_of(Transport transport) {
    return transport == Transport::kUcx ? "ucx" : "shared_memory";
}

constexpr std::string_view name_of(Neighbours neighbours) {
    return neighbours == Neighbours::kUcx ? "ucx" : "memory";
}

constexpr std::string_view name_of(Dispatch dispatch) {
    switch (dispatch) {
        case Dispatch::kAuto:
            return "auto";
        case Dispatch::kWindow:
            return "window";
        case Dispatch::kTwoPhase:
            return "two_phase";
    }
    return "unknown";
}

constexpr std::string_view name_of(KvReserve reserve) {
    return reserve == KvReserve::kWhole ? "whole" : "grow";
}

constexpr std::string_view name_of(MetricsCompat compat) {
    return compat == MetricsCompat::kVllm ? "vllm" : "none";
}

constexpr std::string_view name_of(SharedExperts side) {
    return side == SharedExperts::kAttention ? "attention" : "ffn";
}

}  // namespace afd::daemon
