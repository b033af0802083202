// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small models for the tests of afd-quantize: what they are made into, in as many steps as there
// can be, tokens for them, and what a directory holds afterwards.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "model/family/model_files.h"
#include "tools/afd-quantize/companion_files.h"
#include "tools/afd-quantize/quantise_checkpoint.h"
#include "tools/afd-quantize/quantise_plan.h"
#include "tools/afd-quantize/result_directory.h"

namespace afd::tools {

inline const model::QuantisationConfig kSmoothInt8{
    .experts = ops::WeightFormat::kInt8, .attention = ops::WeightFormat::kInt8, .smooth = true};
// A shard every few tensors, a look at the disk every few units.
inline constexpr QuantiseLimits kSmallLimits{.shard_bytes = 30'000, .batch_bytes = 40'000};

// Of every file below it, by its path from there.
inline std::map<std::string, std::string> contents(const std::string& directory) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (entry.is_directory()) continue;
        std::ifstream stream(entry.path(), std::ios::binary);
        files[std::filesystem::relative(entry.path(), directory)] = {
            std::istreambuf_iterator<char>(stream), {}};
    }
    return files;
}

inline ChannelRanges some_ranges(const model::ModelConfig& config) {
    ChannelRanges ranges(config.num_layers, std::vector<float>(config.hidden));
    for (auto& layer : ranges) {
        for (size_t i = 0; i < layer.size(); ++i) layer[i] = i % 7 == 0 ? 3.0f : 0.2f;
    }
    return ranges;
}

inline Result<QuantiseResult> quantise(
    const std::string& from,
    const std::string& to,
    const model::QuantisationConfig& wanted,
    ops::Parallel& parallel,
    const std::function<void(uint64_t)>& progress = [](uint64_t) {}) {
    AFD_ASSIGN(const model::ModelFiles files, model::ModelFiles::open(from));
    AFD_ASSIGN(const CompanionFiles companions, CompanionFiles::read(from));
    AFD_ASSIGN(ResultDirectory directory,
               ResultDirectory::open(to, describe_job(files, wanted, "", 30'000)));
    AFD_ASSIGN(const QuantiseResult result,
               quantise_checkpoint(files,
                                   wanted,
                                   companions,
                                   directory,
                                   parallel,
                                   progress,
                                   kSmallLimits,
                                   some_ranges(files.config())));
    AFD_TRY(directory.finish());
    return result;
}

inline std::vector<int32_t> some_tokens(size_t count) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * 37 % 96));
    return tokens;
}

}  // namespace afd::tools
