// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/model_check.h"

#include <fmt/core.h>

#include "model/checkpoint/tensor_store.h"
#include "model/decoder/attention_half.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::daemon {
namespace {

std::string summary(const model::ModelConfig& config) {
    return fmt::format(
        "# model: {}, {} layers ({} without experts), hidden {}, {} experts, {} a token{}; "
        "weights: {}; {} KiB of KV cache a token\n",
        config.model_type,
        config.num_layers,
        config.dense_layers.size(),
        config.hidden,
        config.num_experts,
        config.top_k,
        config.num_shared_slots() > 0 ? " and shared ones" : "",
        model::describe(config.quantisation),
        model::kv_shape(config).bytes_per_token() / 1024);
}

// A line for a part of the checkpoint that is there or is not.
template <typename Part>
Result<std::string> line_of(const Result<Part>& part, const std::string& present) {
    if (part.ok()) return "# model: " + present + "\n";
    if (part.error().code == Code::kNotFound) return "# model: " + part.error().message + "\n";
    return part.error();
}

}  // namespace

Result<std::string> check_model(const std::string& directory) {
    AFD_ASSIGN(const model::ModelConfig config, model::load_model_config(directory));
    const auto generation = model::load_generation_config(directory, config);
    if (!generation.ok()) return generation.error();
    const auto tensors = model::TensorStore::open(directory);
    AFD_ASSIGN(const std::string weights,
               line_of(tensors,
                       tensors.ok() ? fmt::format("{} tensors", tensors.value().list().size())
                                    : std::string()));
    AFD_ASSIGN(const std::string tokenizer,
               line_of(model::Tokenizer::load(directory), "a tokenizer"));
    return summary(config) + weights + tokenizer;
}

}  // namespace afd::daemon
