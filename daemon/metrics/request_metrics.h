// SPDX-License-Identifier: Apache-2.0
#pragma once

// RequestMetrics: times, lengths and ends of requests as the gateway sees them, in the buckets that
// vLLM's dashboards know, with finer ones below. A replay is part of its request: what it takes is
// a pause between two tokens.

#include <cstdint>
#include <map>

#include "daemon/metrics/bucket_histogram.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// Microseconds of schedule::steady_now_us(); 0: not yet.
struct RequestMoments {
    uint64_t accepted_us = 0;
    uint64_t started_us = 0;  // Of its first chunk of the prompt.
    uint64_t first_token_us = 0;
    uint64_t last_token_us = 0;
};

class RequestMetrics {
  public:
    // `context_length`: bounds the buckets of lengths.
    explicit RequestMetrics(uint32_t context_length);

    // A worker began with it, for the first time. Both numbers count from now on, however it ends,
    // so that their ratio is that of the same requests.
    void on_started(const RequestMoments& moments,
                    uint32_t num_prompt_tokens_new,
                    uint32_t num_cached_tokens_new);
    // A token came at `now_us`; `moments` are those before it.
    void on_token(const RequestMoments& moments, uint64_t now_us);
    // It ended in one of the good ways: what its client hears, and how many tokens it was allowed.
    void on_finished(const RequestMoments& moments,
                     uint64_t now_us,
                     const client::Finished& finished,
                     uint32_t max_tokens);
    void on_failed(Code code) { ++failed[code]; }
    void on_refused(Code code) { ++refused[code]; }
    uint64_t num_refused() const;
    void on_replayed() { ++num_replays; }
    // It waits again because older ones needed its KV room.
    void on_preempted() { ++num_preemptions; }
    // It ended because attention workers died of it; it has failed, too.
    void on_deadly() { ++num_deadly; }

    BucketHistogram first_token_s;
    BucketHistogram inter_token_s;
    BucketHistogram time_per_token_s;  // Of a request, the first token apart.
    BucketHistogram total_s;
    BucketHistogram queue_s;
    BucketHistogram inference_s;
    BucketHistogram prefill_s;
    BucketHistogram decode_s;
    BucketHistogram prompt_tokens;
    BucketHistogram output_tokens;
    BucketHistogram max_tokens;

    uint64_t num_prompt_tokens = 0;
    uint64_t num_cached_tokens = 0;  // Of prompts: not computed, because a cache had them.
    uint64_t num_output_tokens = 0;
    std::map<client::FinishReason, uint64_t> ends;
    std::map<Code, uint64_t> failed;   // Accepted ones.
    std::map<Code, uint64_t> refused;  // Never accepted.
    uint64_t num_replays = 0;
    uint64_t num_preemptions = 0;
    uint64_t num_deadly = 0;
};

}  // namespace afd::daemon
