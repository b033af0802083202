// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/worker_view.h"

#include "daemon/config/wire_choices.h"
#include "daemon/config/worker_name.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/metrics_status.h"
#include "proto/failure.h"
#include "schedule/context/context_fields.h"

namespace afd::daemon {

schedule::ConstControlView WorkerView::control_of(bool is_ffn, uint32_t index) const {
    if (is_ffn) return layout_.segments().ffn_control(index);
    return layout_.segments().attention_control(index);
}

schedule::HeartbeatView WorkerView::heartbeat(control::Role role, uint32_t index) const {
    return schedule::read_heartbeat(control_of(role == control::FFN, index).heartbeat_words());
}

void WorkerView::fill_metrics(control::Role role, uint32_t index, client::Worker& worker) const {
    if (role == control::FFN) {
        fill_ffn_metrics(Metrics(layout_.segments().ffn_metrics(index)),
                         layout_.rank_experts(index),
                         layout_.setup().model().config().num_experts,
                         worker);
    } else {
        fill_attention_metrics(Metrics(layout_.segments().attention_metrics(index)),
                               layout_.config().num_ffn_workers(),
                               worker);
    }
}

std::vector<TraceSource> WorkerView::trace_sources() const {
    std::vector<TraceSource> sources;
    for (uint32_t session = 0; session < layout_.config().num_attention_workers(); ++session) {
        sources.push_back(
            {"attention", session, Metrics(layout_.segments().attention_metrics(session)).trace()});
    }
    for (uint32_t rank = 0; rank < layout_.config().num_ffn_workers(); ++rank) {
        sources.push_back({"ffn", rank, Metrics(layout_.segments().ffn_metrics(rank)).trace()});
    }
    return sources;
}

Result<control::Role> WorkerView::find(const client::GetContext& asked) const {
    const bool is_ffn = asked.role() == "ffn";
    const uint32_t num_workers =
        is_ffn ? layout_.config().num_ffn_workers() : layout_.config().num_attention_workers();
    if ((!is_ffn && asked.role() != "attention") || asked.index() >= num_workers) {
        return not_found("there is no worker {}{}; there are {} attention and {} ffn workers",
                         with(asked.role(),
                              asked.index(),
                              layout_.config().num_attention_workers(),
                              layout_.config().num_ffn_workers()));
    }
    return is_ffn ? control::FFN : control::ATTENTION;
}

client::Context WorkerView::context(control::Role role, uint32_t index) const {
    client::Context context;
    context.set_role(role_name(role));
    context.set_index(index);
    const schedule::ConstControlView view = control_of(role == control::FFN, index);
    for (const schedule::ContextField& field : schedule::context_fields(view.context())) {
        client::ContextField& shown = *context.add_fields();
        shown.set_name(std::string(field.name));
        shown.set_offset(field.offset);
        shown.set_size(field.size);
        shown.set_value(field.value);
        shown.set_meaning(std::string(field.meaning));
    }
    return context;
}

}  // namespace afd::daemon
