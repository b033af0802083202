// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/metrics_view.h"

#include <algorithm>

#include "daemon/afdd/http_setup.h"
#include "daemon/exposition/exposition.h"
#include "model/attention/kv_cache.h"

namespace afd::daemon {

MetricsView::MetricsView(const InstanceLayout& layout) : layout_(layout) {
    const Config& config = layout.config();
    for (uint32_t session = 0; session < config.num_attention_workers(); ++session) {
        attention_.workers.emplace_back(
            Metrics(layout.segments().attention_metrics(session)), config.num_ffn_workers(), 0);
    }
    for (uint32_t rank = 0; rank < config.num_ffn_workers(); ++rank) {
        const std::set<uint32_t>& experts = layout.rank_experts(rank);
        ffn_.workers.emplace_back(Metrics(layout.segments().ffn_metrics(rank)),
                                  0,
                                  experts.empty() ? 0 : *experts.rbegin() + 1);
    }
}

void MetricsView::follow(const MetricsView& before) {
    attention_.follow(before.attention_);
    ffn_.follow(before.ffn_);
}

void MetricsView::Totals::follow(const Totals& before) {
    left = before.left;
    for (uint32_t index = 0; index < before.workers.size(); ++index) {
        left[index] = before.workers[index].read();
    }
    for (uint32_t index = 0; index < workers.size(); ++index) {
        const auto found = left.find(index);
        if (found == left.end()) continue;
        workers[index].add_earlier(found->second);
        left.erase(found);
    }
}

WorkerCounts MetricsView::counts(const client::Worker& worker) const {
    const Totals& totals = worker.role() == "ffn" ? ffn_ : attention_;
    return totals.workers.at(worker.index()).read();
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
    for (const auto& [index, counts] : ffn_.left) snapshot.left_ffn_workers.add(counts);
    for (const auto& [index, counts] : attention_.left) {
        snapshot.left_attention_workers.add(counts);
    }
    snapshot.hops = hops;
    const Config& config = layout_.config();
    const model::ModelFiles& model = layout_.setup().model();
    snapshot.model_name = served_model_name(config, model.directory());
    snapshot.num_routed_experts = model.config().num_experts;
    snapshot.kv_block_tokens = model::kKvBlockTokens;
    snapshot.shared_memory_bytes = layout_.segment_bytes();
    return exposition_text(snapshot, config.metrics_compat == MetricsCompat::kVllm);
}

}  // namespace afd::daemon
