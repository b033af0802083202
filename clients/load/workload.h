// SPDX-License-Identifier: Apache-2.0
#pragma once

// Workload: which requests a load run sends, and for an open loop when. Everything is a function
// of the seed and the request's index, so two runs, and two levels of one run, ask the same.

#include <cstdint>
#include <string>
#include <vector>

#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::client {

// One prompt a line, empty lines skipped.
// Errors: kNotFound, kInvalidArgument (no prompt in it), each with how to mend it.
Result<std::vector<std::string>> read_prompts(const std::string& path);

// The prompts that come with afd: share/afd/demo_model/prompts.txt beside the program's directory
// when installed, else the demo model's in the source tree. Errors: kNotFound.
Result<std::string> default_prompts_path();

struct Workload {
    std::vector<std::string> prompts;
    uint32_t max_tokens_low = 64;  // Drawn from [low, high], uniformly.
    uint32_t max_tokens_high = 64;
    float temperature = 0;
    bool ignore_eos = false;
    uint64_t seed = 0;
};

struct PlannedRequest {
    uint64_t index = 0;
    size_t prompt_index = 0;
    uint32_t max_tokens = 0;
    uint64_t sampling_seed = 0;  // At most 2^63 - 1, which is what servers of the OpenAI API take.
};

// REQUIRES: prompts not empty, 1 <= max_tokens_low <= max_tokens_high.
PlannedRequest plan_request(const Workload& workload, uint64_t index);
Generate to_message(const Workload& workload, const PlannedRequest& planned);

// Intended arrival times of a Poisson process in microseconds from the start, ascending, of which
// exactly `num_requests` fall into `span_s`: the gaps up to the arrival behind the last of them are
// scaled to it. So every run has as many, without the noise of the draw.
std::vector<int64_t> poisson_arrivals_us(uint64_t num_requests, double span_s, uint64_t seed);

}  // namespace afd::client
