// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker counted (metrics.h), as a client's Status tells it.

#include <cstdint>
#include <set>

#include "daemon/metrics/metrics.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// If there are more FFN workers than this, an attention worker tells the sum of its waits, and its
// waits for that many of the slowest.
inline constexpr uint32_t kPeerWaitsMax = 32;

// `num_ranks`: FFN workers that it waits for; 0 when colocated.
void fill_attention_metrics(const Metrics& metrics, uint32_t num_ranks, client::Worker& worker);

// `experts`: the logical experts that the rank holds of any MoE layer; from `num_routed` on they
// are shared.
void fill_ffn_metrics(const Metrics& metrics,
                      const std::set<uint32_t>& experts,
                      uint32_t num_routed,
                      client::Worker& worker);

}  // namespace afd::daemon
