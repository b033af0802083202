// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/metrics_view.h"

#include <algorithm>
#include <filesystem>

#include "daemon/exposition/exposition.h"
#include "model/attention/kv_cache.h"

namespace afd::daemon {
namespace {

// The last part of the path.
std::string name_of_directory(const std::string& directory) {
    const std::filesystem::path path(directory);
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

MetricsView::MetricsView(const Config& config, const InstanceSetup& setup)
    : config_(config), setup_(setup) {
    for (uint32_t session = 0; session < config.num_attention_workers(); ++session) {
        attention_.emplace_back(
            Metrics(setup.segments().attention_metrics(session)), config.num_ffn_workers(), 0);
    }
    for (uint32_t rank = 0; rank < config.num_ffn_workers(); ++rank) {
        const std::set<uint32_t>& experts = setup.rank_experts(rank);
        ffn_.emplace_back(Metrics(setup.segments().ffn_metrics(rank)),
                          0,
                          experts.empty() ? 0 : *experts.rbegin() + 1);
    }
}

WorkerCounts MetricsView::counts(const client::Worker& worker) const {
    const auto& totals = worker.role() == "ffn" ? ffn_ : attention_;
    return totals.at(worker.index()).read();
}

std::string MetricsView::text(const client::Status& status,
                              const RequestMetrics& requests,
                              const HopTimes& hops,
                              const HttpMetrics* http) const {
    MetricsSnapshot snapshot;
    snapshot.status = status;
    snapshot.requests = &requests;
    snapshot.http = http;
    for (const client::Worker& worker : status.workers()) {
        snapshot.workers.push_back(counts(worker));
    }
    snapshot.hops = hops;
    // As HTTP clients name it.
    snapshot.model_name = config_.http_model.empty() ? name_of_directory(setup_.model().directory())
                                                     : config_.http_model;
    snapshot.num_routed_experts = setup_.model().config().num_experts;
    snapshot.kv_block_tokens = model::kKvBlockTokens;
    snapshot.shared_memory_bytes = setup_.segment_bytes();
    return exposition_text(snapshot, config_.metrics_compat == MetricsCompat::kVllm);
}

}  // namespace afd::daemon
