// SPDX-License-Identifier: Apache-2.0
#include "clients/load/workload.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "proto/check.h"

namespace afd::client {
namespace {

// SplitMix64's output function: a bijection that spreads neighbouring inputs.
uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

enum class Draw : uint64_t { kPrompt = 1, kMaxTokens, kSampling, kArrival };

uint64_t draw(uint64_t seed, uint64_t index, Draw purpose) {
    return mix(mix(mix(seed) + index) + static_cast<uint64_t>(purpose));
}

// In [0, bound); the bias of the remainder is below bound / 2^64.
uint64_t draw_below(uint64_t bound, uint64_t seed, uint64_t index, Draw purpose) {
    return draw(seed, index, purpose) % bound;
}

}  // namespace

Result<std::vector<std::string>> read_prompts(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        return afd::Error{Code::kNotFound,
                          "cannot read the prompts file '" + path + "': " + std::strerror(errno) +
                              "; name one with --prompts FILE (one prompt a line)"};
    }
    std::vector<std::string> prompts;
    for (std::string line; std::getline(file, line);) {
        if (line.ends_with('\r')) line.pop_back();
        if (!line.empty()) prompts.push_back(std::move(line));
    }
    if (!prompts.empty()) return prompts;
    return afd::Error{Code::kInvalidArgument,
                      "the prompts file '" + path + "' holds no prompt; put one on each line"};
}

Result<std::string> default_prompts_path() {
    std::error_code error;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::filesystem::path installed =
        program.parent_path().parent_path() / "share" / "afd" / "demo_model" / "prompts.txt";
    for (const std::filesystem::path& path : {installed, std::filesystem::path(AFD_DEMO_PROMPTS)}) {
        if (std::filesystem::is_regular_file(path, error)) return path.string();
    }
    return afd::Error{Code::kNotFound,
                      "no prompts come with this afd-load (neither '" + installed.string() +
                          "' nor '" + AFD_DEMO_PROMPTS +
                          "'); name a file with --prompts FILE (one prompt a line)"};
}

PlannedRequest plan_request(const Workload& workload, uint64_t index) {
    AFD_ASSERT(!workload.prompts.empty() && workload.max_tokens_low >= 1 &&
                   workload.max_tokens_low <= workload.max_tokens_high,
               "%zu prompts, max_tokens %u to %u",
               workload.prompts.size(),
               workload.max_tokens_low,
               workload.max_tokens_high);
    const uint64_t seed = workload.seed;
    const uint64_t span = uint64_t{workload.max_tokens_high} - workload.max_tokens_low + 1;
    return {index,
            draw_below(workload.prompts.size(), seed, index, Draw::kPrompt),
            workload.max_tokens_low +
                static_cast<uint32_t>(draw_below(span, seed, index, Draw::kMaxTokens)),
            draw(seed, index, Draw::kSampling) >> 1};
}

Generate to_message(const Workload& workload, const PlannedRequest& planned) {
    Generate request;
    request.set_text(workload.prompts[planned.prompt_index]);
    request.set_max_tokens(planned.max_tokens);
    request.set_ignore_eos(workload.ignore_eos);
    request.mutable_sampling()->set_temperature(workload.temperature);
    request.mutable_sampling()->set_seed(planned.sampling_seed);
    return request;
}

std::vector<int64_t> poisson_arrivals_us(uint64_t num_requests, double span_s, uint64_t seed) {
    AFD_ASSERT(span_s > 0, "%f s", span_s);
    std::vector<double> times(num_requests + 1);
    double time = 0;
    for (uint64_t i = 0; i <= num_requests; ++i) {
        // 53 random bits in (0, 1], so that the logarithm is finite.
        const auto bits = static_cast<double>((draw(seed, i, Draw::kArrival) >> 11) + 1);
        time += -std::log(bits * 0x1p-53);
        times[i] = time;
    }
    std::vector<int64_t> arrivals(num_requests);
    const double scale = time > 0 ? span_s * 1e6 / time : 0;
    for (uint64_t i = 0; i < num_requests; ++i) arrivals[i] = std::llround(times[i] * scale);
    return arrivals;
}

}  // namespace afd::client
