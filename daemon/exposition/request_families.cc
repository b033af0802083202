// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "daemon/exposition/families.h"

namespace afd::daemon {
namespace {

// As vLLM calls it.
std::string reason_name(client::FinishReason reason) {
    switch (reason) {
        case client::STOP:
            return "stop";
        case client::LENGTH:
            return "length";
        default:
            return "abort";
    }
}

void add_levels(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.gauge("afd_num_requests_running",
                   "Requests that attention workers are running",
                   "num_requests_running");
    families.value(snapshot.status.num_running());
    families.gauge(
        "afd_num_requests_waiting", "Requests that wait for KV room", "num_requests_waiting");
    families.value(snapshot.status.num_queued());
    families.gauge("afd_num_requests_detached",
                   "Resumable requests without a client, including ended ones");
    families.value(snapshot.status.num_detached());
    uint64_t used = 0;
    uint64_t total = 0;
    for (const client::Worker& worker : snapshot.status.workers()) {
        used += worker.kv_tokens_used();
        total += worker.kv_tokens_total();
    }
    families.gauge("afd_kv_cache_usage_perc",
                   "Reserved part of the KV cache of all attention workers; 1 means all of it",
                   "kv_cache_usage_perc");
    families.value(total == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(total));
    families.gauge("afd_cache_config_info",
                   "Always 1; the labels tell the size of a KV block and how many there are",
                   "cache_config_info");
    const uint64_t num_blocks =
        snapshot.kv_block_tokens == 0 ? 0 : total / snapshot.kv_block_tokens;
    families.value({{"block_size", std::to_string(snapshot.kv_block_tokens)},
                    {"num_blocks", std::to_string(num_blocks)}},
                   1);
}

// Over all attention workers, those that are there no more included.
uint64_t sum_of(const MetricsSnapshot& snapshot, Counter counter) {
    uint64_t sum = snapshot.left_attention_workers.counter(counter);
    for (size_t i = 0; i < snapshot.workers.size(); ++i) {
        if (snapshot.status.workers(static_cast<int>(i)).role() != "attention") continue;
        sum += snapshot.workers[i].counter(counter);
    }
    return sum;
}

void add_counts(const MetricsSnapshot& snapshot, FamilyList& families) {
    const RequestMetrics& requests = *snapshot.requests;
    families.counter("afd_prompt_tokens_total",
                     "Prompt tokens of requests that were started",
                     "prompt_tokens_total");
    families.value(static_cast<double>(requests.num_prompt_tokens));
    families.counter("afd_prompt_tokens_cached_total",
                     "Prompt tokens that were not computed, because a cache had them",
                     "prompt_tokens_cached_total");
    families.value(static_cast<double>(requests.num_cached_tokens));
    families.counter("afd_prefix_cache_queries_total",
                     "Tokens that sequences started with, including replays",
                     "prefix_cache_queries_total");
    families.value(static_cast<double>(sum_of(snapshot, Counter::kPrefixQueries)));
    families.counter("afd_prefix_cache_hits_total",
                     "Tokens of these that the prefix cache had",
                     "prefix_cache_hits_total");
    families.value(static_cast<double>(sum_of(snapshot, Counter::kPrefixHits)));
    families.counter("afd_generation_tokens_total", "Tokens generated", "generation_tokens_total");
    families.value(static_cast<double>(requests.num_output_tokens));
    families.counter("afd_request_success_total",
                     "Requests that ended without an error; abort: cancelled by the client, or "
                     "after the single tool call that it had asked for",
                     "request_success_total");
    for (const auto& [reason, count] : requests.ends) {
        families.value({{"finished_reason", reason_name(reason)}}, static_cast<double>(count));
    }
    families.counter("afd_request_failures_total",
                     "Accepted requests that ended with an error, by its code");
    for (const auto& [code, count] : requests.failed) {
        families.value({{"code", std::string(code_name(code))}}, static_cast<double>(count));
    }
    families.counter("afd_requests_refused_total",
                     "Requests that were not accepted, by the error's code");
    for (const auto& [code, count] : requests.refused) {
        families.value({{"code", std::string(code_name(code))}}, static_cast<double>(count));
    }
    families.counter("afd_replays_total",
                     "Requests that began again because their attention worker was lost");
    families.value(static_cast<double>(requests.num_replays));
    families.counter("afd_preemptions_total",
                     "Requests that began again because older ones needed their KV room",
                     "num_preemptions_total");
    families.value(static_cast<double>(requests.num_preemptions));
    families.counter("afd_deadly_requests_total",
                     "Failed requests that ended because attention workers died of them");
    families.value(static_cast<double>(requests.num_deadly));
}

void add_times(const RequestMetrics& requests, FamilyList& families) {
    const auto add = [&](const std::string& name, const char* help, const BucketHistogram& times) {
        families.histogram("afd_" + name, help, name);
        families.distribution({}, times);
    };
    add("time_to_first_token_seconds",
        "From acceptance to the first token",
        requests.first_token_s);
    add("inter_token_latency_seconds",
        "Between two tokens of a request, including pauses of replays",
        requests.inter_token_s);
    add("request_time_per_output_token_seconds",
        "Mean time per token of a request that ended, after its first token",
        requests.time_per_token_s);
    add("e2e_request_latency_seconds", "From acceptance to the end", requests.total_s);
    add("request_queue_time_seconds",
        "From acceptance to the start of the prompt",
        requests.queue_s);
    add("request_inference_time_seconds",
        "From the start of the prompt to the end",
        requests.inference_s);
    add("request_prefill_time_seconds",
        "From the start of the prompt to the first token",
        requests.prefill_s);
    add("request_decode_time_seconds", "From the first token to the last", requests.decode_s);
}

void add_lengths(const RequestMetrics& requests, FamilyList& families) {
    const auto add = [&](const std::string& name, const char* help, const BucketHistogram& sizes) {
        families.histogram("afd_" + name, help, name);
        families.distribution({}, sizes);
    };
    add("request_prompt_tokens", "Prompt tokens of a request that ended", requests.prompt_tokens);
    add("request_generation_tokens",
        "Generated tokens of a request that ended",
        requests.output_tokens);
    add("request_max_num_generation_tokens",
        "The same, because choices of one prompt are separate requests",
        requests.output_tokens);
    add("request_params_max_tokens",
        "Tokens that a request that ended was allowed to generate",
        requests.max_tokens);
}

}  // namespace

void add_request_families(const MetricsSnapshot& snapshot, FamilyList& families) {
    add_levels(snapshot, families);
    add_counts(snapshot, families);
    add_times(*snapshot.requests, families);
    add_lengths(*snapshot.requests, families);
    families.histogram("afd_iteration_tokens",
                       "Rows (tokens of prompts and new ones) of a step through all layers",
                       "iteration_tokens_total");
    for (size_t i = 0; i < snapshot.workers.size(); ++i) {
        const client::Worker& worker = snapshot.status.workers(static_cast<int>(i));
        if (worker.role() != "attention") continue;
        families.numbers(worker_labels(worker),
                         snapshot.workers[i].histogram(Histogram::kStepRows));
    }
}

}  // namespace afd::daemon
