// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/status_json.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace afd::client {
namespace {

nlohmann::ordered_json link_json(const Link& link) {
    return {{"is_open", link.is_open()},
            {"is_near", link.is_near()},
            {"latency_ns", link.latency_ns()},
            {"bytes_per_s", link.bytes_per_s()},
            {"bytes_sent", link.bytes_sent()},
            {"bytes_received", link.bytes_received()}};
}

nlohmann::ordered_json host_json(const Host& host) {
    return {{"name", host.name()},
            {"address", host.address()},
            {"num_cores", host.num_cores()},
            {"memory_bytes", host.memory_bytes()}};
}

nlohmann::ordered_json worker_json(const Worker& worker) {
    nlohmann::ordered_json row;
    row["role"] = worker.role();
    row["index"] = worker.index();
    row["host"] = worker.host();
    row["pid"] = worker.pid();
    row["state"] = worker.state();
    row["num_restarts"] = worker.num_restarts();
    row["num_sequences"] = worker.num_sequences();
    row["num_in_flight"] = worker.num_in_flight();
    row["kv_tokens_used"] = worker.kv_tokens_used();
    row["kv_tokens_total"] = worker.kv_tokens_total();
    row["kv_tokens_held"] = worker.kv_tokens_held();
    row["kv_windowed_tokens_used"] = worker.kv_windowed_tokens_used();
    row["num_tokens"] = worker.num_tokens();
    row["num_rounds"] = worker.num_rounds();
    row["num_two_phase_rounds"] = worker.num_two_phase_rounds();
    row["num_two_phase_fallbacks"] = worker.num_two_phase_fallbacks();
    row["num_timeouts"] = worker.num_timeouts();
    row["num_bad_choices"] = worker.num_bad_choices();
    row["num_overruled"] = worker.num_overruled();
    row["weight_bytes_left"] = worker.weight_bytes_left();
    row["num_prefix_queries"] = worker.num_prefix_queries();
    row["num_prefix_hits"] = worker.num_prefix_hits();
    row["heartbeat_age_ms"] = worker.heartbeat_age_ms();
    row["uptime_ms"] = worker.uptime_ms();
    row["busy_us"] = worker.busy_us();
    row["bubble_us"] = worker.bubble_us();
    row["idle_us"] = worker.idle_us();
    row["num_positions"] = worker.num_positions();
    row["links"] = nlohmann::ordered_json::array();
    for (const Link& link : worker.links()) row["links"].push_back(link_json(link));
    row["stages"] = nlohmann::ordered_json::array();
    for (const StageTime& stage : worker.stages()) {
        row["stages"].push_back({{"name", stage.name()}, {"time_us", stage.time_us()}});
    }
    row["distributions"] = nlohmann::ordered_json::array();
    for (const Distribution& what : worker.distributions()) {
        row["distributions"].push_back({{"name", what.name()},
                                        {"unit", what.unit()},
                                        {"count", what.count()},
                                        {"mean", what.mean()},
                                        {"p50", what.p50()},
                                        {"p99", what.p99()},
                                        {"max", what.max()}});
    }
    row["expert_rows"] = nlohmann::ordered_json::array();
    for (const ExpertRows& expert : worker.expert_rows()) {
        row["expert_rows"].push_back({{"expert", expert.expert()},
                                      {"rows", expert.rows()},
                                      {"is_shared", expert.is_shared()}});
    }
    return row;
}

}  // namespace

std::string status_json(const Status& status) {
    nlohmann::ordered_json object;
    object["instance"] = status.instance();
    object["state"] = status.state();
    object["reason"] = status.reason();
    object["resize"] = status.resize();
    object["upgrade"] = status.upgrade();
    object["pid"] = status.pid();
    object["uptime_ms"] = status.uptime_ms();
    object["version"] = status.version();
    object["model"] = status.model();
    object["topology"] = status.topology();
    object["router"] = status.router();
    object["shared_experts"] = status.shared_experts();
    object["transport"] = status.transport();
    object["kv_dtype"] = status.kv_dtype();
    object["kv_bytes_per_token"] = status.kv_bytes_per_token();
    object["kv_windowed_bytes_per_token"] = status.kv_windowed_bytes_per_token();
    object["kv_windowed_tokens"] = status.kv_windowed_tokens();
    object["dispatch_dtype"] = status.dispatch_dtype();
    object["ffn_policy"] = status.ffn_policy();
    object["ffn_scheduler"] = status.ffn_scheduler();
    object["expert_placement"] = status.expert_placement();
    object["segment_prefix"] = status.segment_prefix();
    object["certificate_expires_s"] = status.certificate_expires_s();
    object["numeric_class"] = status.numeric_class();
    object["context_length"] = status.context_length();
    object["vocab_size"] = status.vocab_size();
    object["num_running"] = status.num_running();
    object["num_queued"] = status.num_queued();
    object["num_finished"] = status.num_finished();
    object["num_failed"] = status.num_failed();
    object["num_refused"] = status.num_refused();
    object["num_preemptions"] = status.num_preemptions();
    object["num_detached"] = status.num_detached();
    object["kept_bytes"] = status.kept_bytes();
    object["num_output_tokens"] = status.num_output_tokens();
    object["output_tokens_per_s"] = status.output_tokens_per_s();
    object["waits"] = std::vector<std::string>(status.waits().begin(), status.waits().end());
    object["hosts"] = nlohmann::ordered_json::array();
    for (const Host& host : status.hosts()) object["hosts"].push_back(host_json(host));
    object["workers"] = nlohmann::ordered_json::array();
    for (const Worker& worker : status.workers()) {
        object["workers"].push_back(worker_json(worker));
    }
    // A path or a reason may have bytes that are no UTF-8; they are replaced instead of thrown at.
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace afd::client
