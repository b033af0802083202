// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one level of a load run measured.
//
// Clock: the client's, steady; all times in microseconds since the start of the level.
// Rules:
// (1) Latencies count from the intended time of a request. In an open loop that is its place in
//     the schedule, so a server (or client) that stalls is charged for the requests that could not
//     be sent meanwhile. In a closed loop it is the time of sending.
// (2) TTFT: to the arrival of the first chunk that holds a token. E2E: to the arrival of the end.
// (3) ITL: the gap between two consecutive tokens as the client receives them. Of a chunk with k
//     tokens one arrives after the gap since the chunk before, the other k - 1 with it: gaps of 0.
//     `itl_spread_us` shares the same gap out: k times gap / k (the first chunk's others stay 0).
//     Both hold num_tokens - 1 values a request. Of a server that tells how many tokens came but
//     not in which chunk, ITL is the same; `itl_spread_us` shares all gaps out over all tokens. So
//     do both if it tells fewer tokens than chunks came.
// (4) Only requests that succeed enter the latencies and throughputs; a request that fails is
//     counted as failed, with its reason, never as fast.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "clients/load/failure.h"
#include "clients/load/histogram.h"
#include "proto/status.h"

namespace afd::client {

// One step of a load run: closed (a number of requests in flight) or open (a rate).
struct Level {
    uint32_t concurrency = 0;  // Closed loop; 0: open loop.
    double rate = 0;           // Open loop: requests a second.

    bool is_open() const { return concurrency == 0; }
    std::string name() const;  // "c=4", "r=2.5".
};

enum class Outcome { kOk, kFailed, kCancelled };

struct RequestRecord {
    uint64_t index = 0;
    size_t prompt_index = 0;
    uint32_t max_tokens = 0;
    int64_t intended_us = 0;
    int64_t sent_us = 0;
    int64_t first_token_us = -1;  // -1: no token came.
    int64_t end_us = 0;
    uint32_t num_chunks = 0;
    uint64_t num_tokens = 0;
    uint32_t num_prompt_tokens = 0;
    uint32_t num_cached_tokens = 0;  // Of the prompt, from the server's prefix cache.
    Outcome outcome = Outcome::kFailed;
    Failure failure{"", {Code::kOk, ""}};  // Why it failed.
};

// How well the client itself kept up.
struct ClientHealth {
    Histogram lag_us;           // Open loop: actual minus intended send.
    double busy_ratio = 0;      // Of the level's time not spent waiting.
    int64_t loop_stall_us = 0;  // Longest time between two waits.
};

struct ErrorGroup {
    Code code = Code::kOk;
    uint64_t count = 0;
    std::string sample;  // The first message.
};

struct LevelResult {
    Level level;
    std::vector<RequestRecord> requests;
    Histogram ttft_us;
    Histogram itl_us;
    Histogram itl_spread_us;
    Histogram e2e_us;
    ClientHealth client;
    // To the end of the last request; of an open loop at least the time in which they arrive, or
    // the rate would seem higher than it was.
    int64_t elapsed_us = 0;
    bool interrupted = false;  // Ctrl-C, SIGTERM; what was in flight is kCancelled.
    std::string broken;        // Why the connection broke; empty: it did not.
    uint64_t num_guessed = 0;  // Successful requests whose tokens nobody told; chunks were counted.

    uint64_t num_with(Outcome outcome) const;
    uint64_t num_prompt_tokens() const;  // Of successful requests, as the next two.
    uint64_t num_cached_tokens() const;
    uint64_t num_output_tokens() const;
    double requests_per_s() const;  // Successful requests.
    double output_tokens_per_s() const;
    std::map<std::string, ErrorGroup> errors() const;  // By Failure::kind.

    // Whether the client, not the server, may have shaped the latencies: it waited for less than a
    // tenth of the time, or the 99th percentile of its lag exceeds both 1 ms and a tenth of the
    // median TTFT. The reason; empty if not.
    std::string saturation() const;
};

}  // namespace afd::client
