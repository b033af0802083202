// SPDX-License-Identifier: Apache-2.0
#include "clients/load/level_result.h"

#include <fmt/core.h>

#include <algorithm>

namespace afd::client {
namespace {

template <typename Count>
uint64_t sum_of_successful(const std::vector<RequestRecord>& requests,
                           Count RequestRecord::*count) {
    uint64_t sum = 0;
    for (const RequestRecord& request : requests) {
        if (request.outcome == Outcome::kOk) sum += request.*count;
    }
    return sum;
}

}  // namespace

std::string Level::name() const {
    return is_open() ? fmt::format("r={:g}", rate) : fmt::format("c={}", concurrency);
}

uint64_t LevelResult::num_with(Outcome outcome) const {
    return static_cast<uint64_t>(
        std::count_if(requests.begin(), requests.end(), [&](const RequestRecord& request) {
            return request.outcome == outcome;
        }));
}

uint64_t LevelResult::num_prompt_tokens() const {
    return sum_of_successful(requests, &RequestRecord::num_prompt_tokens);
}

uint64_t LevelResult::num_cached_tokens() const {
    return sum_of_successful(requests, &RequestRecord::num_cached_tokens);
}

uint64_t LevelResult::num_output_tokens() const {
    return sum_of_successful(requests, &RequestRecord::num_tokens);
}

double LevelResult::requests_per_s() const {
    if (elapsed_us == 0) return 0;
    return static_cast<double>(num_with(Outcome::kOk)) * 1e6 / static_cast<double>(elapsed_us);
}

double LevelResult::output_tokens_per_s() const {
    if (elapsed_us == 0) return 0;
    return static_cast<double>(num_output_tokens()) * 1e6 / static_cast<double>(elapsed_us);
}

std::map<std::string, ErrorGroup> LevelResult::errors() const {
    std::map<std::string, ErrorGroup> groups;
    for (const RequestRecord& request : requests) {
        if (request.outcome != Outcome::kFailed) continue;
        ErrorGroup& group = groups[request.failure.kind];
        if (group.count++ > 0) continue;
        group.code = request.failure.error.code;
        group.sample = request.failure.error.message;
    }
    return groups;
}

std::string LevelResult::saturation() const {
    if (client.busy_ratio > 0.9) {
        return fmt::format("it was busy {:.0f} % of the time", client.busy_ratio * 100);
    }
    const int64_t lag_us = client.lag_us.value_at(99);
    const int64_t allowed_us = std::max<int64_t>(1000, ttft_us.value_at(50) / 10);
    if (lag_us > allowed_us) {
        return fmt::format("it sent p99 {:.1f} ms late, more than {:.1f} ms",
                           static_cast<double>(lag_us) / 1000,
                           static_cast<double>(allowed_us) / 1000);
    }
    return "";
}

}  // namespace afd::client
