// SPDX-License-Identifier: Apache-2.0
#include "tests/model/checkpoint/checkpoint_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>
#include <utility>

#include "model/family/model_files.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_tensors.h"
#include "model/safetensors/safetensors_writer.h"
#include "ops/format/weight_format.h"
#include "proto/check.h"

namespace afd::model {

using nlohmann::json;

namespace {

bool has(const std::string& name, const std::string& part) {
    return name.find(part) != std::string::npos;
}

}  // namespace

json small_config() {
    return {{"architectures", {"DeepseekV3ForCausalLM"}},
            {"model_type", "deepseek_v3"},
            {"vocab_size", 96},
            {"hidden_size", 64},
            {"num_hidden_layers", 3},
            {"max_position_embeddings", 512},
            {"num_attention_heads", 3},
            {"num_key_value_heads", 3},
            {"q_lora_rank", 24},
            {"kv_lora_rank", 32},
            {"qk_nope_head_dim", 16},
            {"qk_rope_head_dim", 8},
            {"v_head_dim", 16},
            {"intermediate_size", 96},
            {"moe_intermediate_size", 32},
            {"n_routed_experts", 8},
            {"n_shared_experts", 1},
            {"num_experts_per_tok", 3},
            {"n_group", 4},
            {"topk_group", 2},
            {"norm_topk_prob", true},
            {"routed_scaling_factor", 2.5},
            {"first_k_dense_replace", 1},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000},
            {"rope_scaling", nullptr},
            {"tie_word_embeddings", false},
            {"eos_token_id", 1}};
}

CheckpointBuilder::CheckpointBuilder(json config, uint32_t seed)
    : config_(std::move(config)), random_(seed) {
    const uint64_t hidden = dim("hidden_size");
    add("model.embed_tokens.weight", {dim("vocab_size"), hidden});
    for (uint64_t layer = 0; layer < dim("num_hidden_layers"); ++layer) add_layer(layer);
    add("model.norm.weight", {hidden});
    if (!config_.at("tie_word_embeddings").get<bool>()) {
        add("lm_head.weight", {dim("vocab_size"), hidden});
    }
}

void CheckpointBuilder::add_layer(uint64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string attention = prefix + "self_attn.";
    const uint64_t hidden = dim("hidden_size");
    const uint64_t heads = dim("num_attention_heads");
    const uint64_t latent = dim("kv_lora_rank");
    const uint64_t query_rows = heads * (dim("qk_nope_head_dim") + dim("qk_rope_head_dim"));
    add(prefix + "input_layernorm.weight", {hidden});
    add(prefix + "post_attention_layernorm.weight", {hidden});
    if (config_.at("q_lora_rank").is_null()) {
        add(attention + "q_proj.weight", {query_rows, hidden});
    } else {
        add(attention + "q_a_proj.weight", {dim("q_lora_rank"), hidden});
        add(attention + "q_a_layernorm.weight", {dim("q_lora_rank")});
        add(attention + "q_b_proj.weight", {query_rows, dim("q_lora_rank")});
    }
    add(attention + "kv_a_proj_with_mqa.weight", {latent + dim("qk_rope_head_dim"), hidden});
    add(attention + "kv_a_layernorm.weight", {latent});
    add(attention + "kv_b_proj.weight",
        {heads * (dim("qk_nope_head_dim") + dim("v_head_dim")), latent});
    add(attention + "o_proj.weight", {hidden, heads * dim("v_head_dim")});
    if (layer < dim("first_k_dense_replace")) {
        add_mlp(prefix + "mlp.", dim("intermediate_size"));
        return;
    }
    add(prefix + "mlp.gate.weight", {dim("n_routed_experts"), hidden});
    add(prefix + "mlp.gate.e_score_correction_bias", {dim("n_routed_experts")});
    for (uint64_t expert = 0; expert < dim("n_routed_experts"); ++expert) {
        add_mlp(prefix + "mlp.experts." + std::to_string(expert) + ".",
                dim("moe_intermediate_size"));
    }
    add_mlp(prefix + "mlp.shared_experts.", dim("moe_intermediate_size") * dim("n_shared_experts"));
}

void CheckpointBuilder::add_mlp(const std::string& prefix, uint64_t intermediate) {
    add(prefix + "gate_proj.weight", {intermediate, dim("hidden_size")});
    add(prefix + "up_proj.weight", {intermediate, dim("hidden_size")});
    add(prefix + "down_proj.weight", {dim("hidden_size"), intermediate});
}

float CheckpointBuilder::next_normal() {
    const auto uniform = [this] {
        // SplitMix64 (Steele, Lea, Flood 2014).
        uint64_t z = (random_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return static_cast<double>(((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
    };
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform()));
}

void CheckpointBuilder::add(const std::string& name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t extent : shape) count *= extent;
    const bool is_norm = has(name, "norm");
    const bool is_embedding = has(name, "embed");
    const float inputs = shape.size() == 2 ? static_cast<float>(shape[1]) : 1.0f;
    const float scale = is_norm || shape.size() == 1 ? 0.1f
                        : is_embedding               ? 1.0f
                                                     : 1.0f / std::sqrt(inputs);
    Tensor tensor{name, std::move(shape), std::vector<ops::Bf16>(count), {}};
    for (ops::Bf16& value : tensor.values) {
        value = ops::from_float((is_norm ? 1.0f : 0.0f) + scale * next_normal());
    }
    tensors_.push_back(std::move(tensor));
}

void CheckpointBuilder::add_integers(const std::string& name,
                                     std::vector<uint64_t> shape,
                                     std::vector<int32_t> values) {
    tensors_.push_back({name, std::move(shape), {}, std::move(values)});
}

void CheckpointBuilder::store_as_f32(const std::string& name, std::vector<float> values) {
    tensors_[index_of(name)].floats = std::move(values);
}

size_t CheckpointBuilder::index_of(const std::string& name) const {
    size_t index = 0;
    while (index < tensors_.size() && tensors_[index].name != name) ++index;
    AFD_ASSERT(index < tensors_.size(), "no tensor %s", name.c_str());
    return index;
}

std::vector<ops::Bf16>& CheckpointBuilder::tensor(const std::string& name) {
    return tensors_[index_of(name)].values;
}

void CheckpointBuilder::rename(const std::string& from, const std::string& to) {
    tensors_[index_of(from)].name = to;
}

void CheckpointBuilder::remove(const std::string& name) {
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(index_of(name)));
}

void CheckpointBuilder::reshape(const std::string& name, std::vector<uint64_t> shape) {
    tensors_[index_of(name)].shape = std::move(shape);
}

void CheckpointBuilder::fuse_experts() {
    const uint64_t hidden = dim("hidden_size");
    const uint64_t intermediate = dim("moe_intermediate_size");
    const uint64_t experts = dim("n_routed_experts");
    for (uint64_t layer = dim("first_k_dense_replace"); layer < dim("num_hidden_layers"); ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
        Tensor gate_up{prefix + "gate_up_proj", {experts, 2 * intermediate, hidden}, {}, {}};
        Tensor down{prefix + "down_proj", {experts, hidden, intermediate}, {}, {}};
        for (uint64_t expert = 0; expert < experts; ++expert) {
            const std::string own = prefix + std::to_string(expert) + ".";
            for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
                Tensor& target = part[0] == 'd' ? down : gate_up;
                const std::vector<ops::Bf16>& values = tensor(own + part);
                target.values.insert(target.values.end(), values.begin(), values.end());
                remove(own + part);
            }
        }
        tensors_.push_back(std::move(gate_up));
        tensors_.push_back(std::move(down));
    }
}

void CheckpointBuilder::wrap(const NamePrefix& prefix) {
    for (Tensor& tensor : tensors_) {
        if (!prefix.kept.empty() && tensor.name.starts_with(prefix.kept)) continue;
        tensor.name = std::string(prefix.stored) + tensor.name.substr(prefix.plain.size());
    }
    add("vision_tower.layers.0.fc1.weight", {6, 8});
    config_ = {{"architectures", {"SomeForConditionalGeneration"}},
               {"model_type", "some_vl"},
               {"text_config", config_}};
}

namespace {

// The nearest value, ties to the even code. REQUIRES: |value| <= 448.
ops::E4m3 nearest_e4m3(float value) {
    uint8_t best = 0;
    for (uint8_t code = 0; code < 0x7f; ++code) {
        const float distance = std::abs(ops::to_float(ops::E4m3{code}) - std::abs(value));
        const float least = std::abs(ops::to_float(ops::E4m3{best}) - std::abs(value));
        if (distance < least || (distance == least && code % 2 == 0)) best = code;
    }
    return {static_cast<uint8_t>(best | (value < 0 ? 0x80 : 0))};
}

}  // namespace

void CheckpointBuilder::store_as_fp8(bool has_powers, const std::string& kept) {
    std::vector<Tensor> scales;
    for (Tensor& tensor : tensors_) {
        if (!has(tensor.name, "_proj") || tensor.shape.size() != 2) continue;
        if (!kept.empty() && has(tensor.name, kept)) continue;
        const uint64_t depth = tensor.shape[1];
        const uint64_t per_row = ops::fp8_blocks(depth);
        std::vector<float> largest(ops::fp8_blocks(tensor.shape[0]) * per_row);
        const auto block_of = [&](size_t i) {
            return i / depth / ops::kFp8BlockEdge * per_row + i % depth / ops::kFp8BlockEdge;
        };
        for (size_t i = 0; i < tensor.values.size(); ++i) {
            float& of_block = largest[block_of(i)];
            of_block = std::max(of_block, std::abs(ops::to_float(tensor.values[i])));
        }
        Tensor scale{
            tensor.name + "_scale_inv", {ops::fp8_blocks(tensor.shape[0]), per_row}, {}, {}};
        for (float& value : largest) {
            value /= 448;
            if (!has_powers) continue;
            value = std::exp2(std::ceil(std::log2(value)));
            scale.exponents.push_back(static_cast<uint8_t>(std::ilogb(value) + 127));
        }
        for (size_t i = 0; i < tensor.values.size(); ++i) {
            const float scaled = ops::to_float(tensor.values[i]) / largest[block_of(i)];
            tensor.fp8.push_back(nearest_e4m3(std::clamp(scaled, -448.0f, 448.0f)));
        }
        if (!has_powers) scale.floats = largest;
        scales.push_back(std::move(scale));
    }
    tensors_.insert(tensors_.end(), scales.begin(), scales.end());
    config_["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
    if (has_powers) config_["quantization_config"]["scale_fmt"] = "ue8m0";
}

void CheckpointBuilder::store_as_packed_int4(const std::string& kept) {
    constexpr uint64_t kGroup = 32;
    std::vector<Tensor> scales;
    for (Tensor& tensor : tensors_) {
        if (!has(tensor.name, ".mlp.") || !has(tensor.name, "_proj")) continue;
        if (!kept.empty() && has(tensor.name, kept)) continue;
        const uint64_t depth = tensor.shape[1];
        const uint64_t per_row = (depth + kGroup - 1) / kGroup;
        Tensor scale{tensor.name + "_scale", {tensor.shape[0], per_row}, {}, {}};
        std::vector<uint32_t> words(tensor.values.size() / 8);
        for (size_t group = 0; group < tensor.shape[0] * per_row; ++group) {
            const size_t column = group % per_row * kGroup;
            const size_t first = group / per_row * depth + column;
            const size_t end = first + std::min(kGroup, depth - column);
            float largest = 0;
            for (size_t i = first; i < end; ++i) {
                largest = std::max(largest, std::abs(ops::to_float(tensor.values[i])));
            }
            const ops::Bf16 step = ops::from_float((group % 2 == 0 ? largest : -largest) / 7.5f);
            scale.values.push_back(step);
            for (size_t i = first; i < end; ++i) {
                const float q = ops::to_float(tensor.values[i]) / ops::to_float(step);
                const int stored = std::clamp(static_cast<int>(std::lround(q)) + 8, 0, 15);
                words[i / 8] |= static_cast<uint32_t>(stored) << (i % 8 * 4);
            }
        }
        tensor.name += "_packed";
        tensor.shape[1] = depth / 8;
        for (const uint32_t word : words) tensor.integers.push_back(static_cast<int32_t>(word));
        scales.push_back(std::move(scale));
    }
    tensors_.insert(tensors_.end(), scales.begin(), scales.end());
    const json weights = {
        {"num_bits", 4}, {"type", "int"}, {"symmetric", true}, {"group_size", 32}};
    config_["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

void CheckpointBuilder::store_as_int8(const std::string& kept, bool is_ours) {
    std::vector<Tensor> scales;
    for (Tensor& tensor : tensors_) {
        if (!has(tensor.name, "_proj") || tensor.shape.size() != 2) continue;
        if (!kept.empty() && has(tensor.name, kept)) continue;
        const bool is_expanded = is_ours && has(tensor.name, "kv_b_proj");
        const size_t depth = tensor.shape[1];
        Tensor scale{tensor.name + "_scale", {tensor.shape[0], 1}, {}, {}};
        for (size_t n = 0; n < tensor.shape[0]; ++n) {
            const auto row = std::span(tensor.values).subspan(n * depth, depth);
            float largest = 0;
            for (const ops::Bf16 value : row) {
                largest = std::max(largest, std::abs(ops::to_float(value)));
            }
            // All 256 values are for use.
            const float step = ops::to_float(ops::from_float(largest / 127.5f));
            for (ops::Bf16& value : row) {
                const auto q = std::clamp(std::lround(ops::to_float(value) / step), -128L, 127L);
                if (is_expanded) value = ops::from_float(static_cast<float>(q) * step);
                if (!is_expanded) tensor.int8.push_back(static_cast<int8_t>(q));
            }
            if (is_ours) scale.floats.push_back(step);
            if (!is_ours) scale.values.push_back(ops::from_float(step));
        }
        if (is_ours) scale.shape.pop_back();
        if (!is_expanded) scales.push_back(std::move(scale));
    }
    tensors_.insert(tensors_.end(), scales.begin(), scales.end());
    if (is_ours) {
        config_["quantization_config"] = {
            {"quant_method", "afd"}, {"experts", "int8"}, {"attention", "int8"}};
        return;
    }
    const json weights = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
    const json rows = {{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
    const json group = {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", rows}};
    config_["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                      {"format", "int-quantized"},
                                      {"config_groups", {{"group_0", group}}}};
}

TensorToWrite CheckpointBuilder::to_write(const Tensor& tensor) {
    const auto of = [&](StorageType type, const auto& values) {
        return TensorToWrite{tensor.name, type, tensor.shape, std::as_bytes(std::span(values))};
    };
    if (!tensor.integers.empty()) return of(StorageType::kI32, tensor.integers);
    if (!tensor.fp8.empty()) return of(StorageType::kF8E4M3, tensor.fp8);
    if (!tensor.int8.empty()) return of(StorageType::kI8, tensor.int8);
    if (!tensor.floats.empty()) return of(StorageType::kF32, tensor.floats);
    if (!tensor.exponents.empty()) return of(StorageType::kF8E8M0, tensor.exponents);
    return of(StorageType::kBf16, tensor.values);
}

void CheckpointBuilder::write(const std::string& directory) const {
    std::ofstream(directory + "/config.json") << config_.dump(2);
    std::vector<TensorToWrite> list;
    for (const Tensor& tensor : tensors_) {
        list.push_back(to_write(tensor));
    }
    const auto result = write_safetensors(directory + "/model.safetensors", list);
    ASSERT_TRUE(result.ok()) << result.error().message;
}

void write_kv_factors(const std::string& directory, const ModelConfig& config) {
    const ops::MlaShape shape = mla_shape_of(config).value();
    const std::vector<float> latent(shape.kv_lora_rank, 24.0f);
    const std::vector<float> key(shape.qk_rope_head_dim, 24.0f);
    std::vector<TensorToWrite> tensors;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        tensors.push_back({.name = latent_scale_name(layer),
                           .dtype = StorageType::kF32,
                           .shape = {latent.size()},
                           .data = std::as_bytes(std::span(latent))});
        tensors.push_back({.name = key_scale_name(layer),
                           .dtype = StorageType::kF32,
                           .shape = {key.size()},
                           .data = std::as_bytes(std::span(key))});
    }
    ASSERT_TRUE(write_safetensors(directory + "/" + kKvScalesFile, tensors).ok());
}

}  // namespace afd::model
