// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/lane_list.h"

#include "proto/failure.h"

namespace afd::daemon {
namespace {

void add_lane(const schedule::InstanceSegments& segments,
              uint32_t rank,
              uint32_t session,
              uint32_t micro_batch,
              client::Context& answer) {
    const schedule::LaneWords words = segments.lane_words(rank, session, micro_batch);
    if (words.round == 0) return;
    client::Lane& lane = *answer.add_lanes();
    lane.set_session(session);
    lane.set_micro_batch(micro_batch);
    lane.set_rank(rank);
    lane.set_round(words.round);
    lane.set_layer_id(words.layer_id);
    lane.set_acknowledged(words.acknowledged);
}

}  // namespace

Result<> check_lanes(const InstanceLayout& layout) {
    if (layout.segments().has_shared_windows()) return {};
    return unimplemented(
        "lanes are in memory that workers share; over transport = ucx each has its own, and afdd "
        "does not see it");
}

void list_lanes(const InstanceLayout& layout,
                const client::GetContext& asked,
                client::Context& answer) {
    const schedule::InstanceSegments& segments = layout.segments();
    const schedule::Geometry& geometry = segments.geometry();
    const bool is_ffn = asked.role() == "ffn";
    const uint32_t num_peers = is_ffn ? geometry.num_sessions : geometry.num_ffn_workers;
    for (uint32_t peer = 0; peer < num_peers; ++peer) {
        for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
            add_lane(
                segments, is_ffn ? asked.index() : peer, is_ffn ? peer : asked.index(), m, answer);
        }
    }
}

}  // namespace afd::daemon
