// SPDX-License-Identifier: Apache-2.0
#include "tests/model/toy_family/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "model/safetensors/safetensors_writer.h"

namespace afd::model {

using nlohmann::json;

json toy_config() {
    return {{"architectures", {"ToyGqaForCausalLM"}},
            {"model_type", "toy_gqa"},
            {"vocab_size", 80},
            {"hidden_size", 48},
            {"num_hidden_layers", 2},
            {"max_position_embeddings", 256},
            {"num_attention_heads", 6},
            {"num_key_value_heads", 2},
            {"head_dim", 10},
            {"intermediate_size", 40},
            {"num_local_experts", 4},
            {"num_experts_per_tok", 4},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000},
            {"tie_word_embeddings", false},
            {"eos_token_id", 1}};
}

ToyCheckpoint::ToyCheckpoint(json config, uint32_t seed) : config_(std::move(config)) {
    const uint64_t hidden = dim("hidden_size");
    const uint64_t query = dim("num_attention_heads") * dim("head_dim");
    const uint64_t key_value = dim("num_key_value_heads") * dim("head_dim");
    const uint64_t wide = dim("intermediate_size");
    add("model.embed_tokens.weight", {dim("vocab_size"), hidden}, seed);
    for (uint64_t layer = 0; layer < dim("num_hidden_layers"); ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        add(prefix + "input_layernorm.weight", {hidden}, seed);
        add(prefix + "self_attn.q_proj.weight", {query, hidden}, seed);
        add(prefix + "self_attn.k_proj.weight", {key_value, hidden}, seed);
        add(prefix + "self_attn.v_proj.weight", {key_value, hidden}, seed);
        add(prefix + "self_attn.o_proj.weight", {hidden, query}, seed);
        add(prefix + "post_attention_layernorm.weight", {hidden}, seed);
        const std::string moe = prefix + "block_sparse_moe.";
        add(moe + "gate.weight", {dim("num_local_experts"), hidden}, seed);
        for (uint64_t e = 0; e < dim("num_local_experts"); ++e) {
            const std::string expert = moe + "experts." + std::to_string(e) + ".";
            add(expert + "w1.weight", {wide, hidden}, seed);
            add(expert + "w3.weight", {wide, hidden}, seed);
            add(expert + "w2.weight", {hidden, wide}, seed);
        }
    }
    add("model.norm.weight", {hidden}, seed);
    add("lm_head.weight", {dim("vocab_size"), hidden}, seed);
}

// Norms near 1, matrices with variance 1 / inputs, so that activations stay near 1.
void ToyCheckpoint::add(const std::string& name, std::vector<uint64_t> shape, uint32_t seed) {
    std::mt19937 generator(seed + static_cast<uint32_t>(tensors_.size()) * 1000);
    std::normal_distribution<float> normal;
    const bool is_norm = shape.size() == 1;
    const bool is_embedding = name.find("embed") != std::string::npos;
    const float scale = is_norm        ? 0.1f
                        : is_embedding ? 1.0f
                                       : 1.0f / std::sqrt(static_cast<float>(shape[1]));
    std::vector<ops::Bf16> values(is_norm ? shape[0] : shape[0] * shape[1]);
    for (ops::Bf16& value : values) {
        value = ops::from_float((is_norm ? 1.0f : 0.0f) + scale * normal(generator));
    }
    tensors_[name] = {std::move(shape), std::move(values)};
}

void ToyCheckpoint::write(const std::string& directory) const {
    std::ofstream(directory + "/config.json") << config_.dump(2);
    std::vector<TensorToWrite> list;
    for (const auto& [name, tensor] : tensors_) {
        list.push_back(
            {name, StorageType::kBf16, tensor.shape, std::as_bytes(std::span(tensor.values))});
    }
    const auto result = write_safetensors(directory + "/model.safetensors", list);
    ASSERT_TRUE(result.ok()) << result.error().message;
}

ToyCheckpoint::Vector ToyCheckpoint::values(const std::string& name) const {
    Vector wide;
    for (const ops::Bf16 value : tensors_.at(name).values) {
        wide.push_back(static_cast<double>(ops::to_float(value)));
    }
    return wide;
}

ToyCheckpoint::Vector ToyCheckpoint::product(const std::string& name, const Vector& x) const {
    const Vector weight = values(name);
    Vector y(weight.size() / x.size());
    for (size_t n = 0; n < y.size(); ++n) {
        for (size_t i = 0; i < x.size(); ++i) y[n] += weight[n * x.size() + i] * x[i];
    }
    return y;
}

ToyCheckpoint::Vector ToyCheckpoint::norm(const std::string& name, const Vector& x) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(x.size()) +
                                  config_.at("rms_norm_eps").get<double>());
    Vector y = values(name);
    for (size_t i = 0; i < x.size(); ++i) y[i] *= x[i] / root;
    return y;
}

// Pairs (2i, 2i + 1) of every head by position · theta^(-2i / dim). Left where they are: a score
// does not see in which order a head's elements lie.
void ToyCheckpoint::rotate(Vector& row, size_t position) const {
    const size_t head_dim = dim("head_dim");
    const double theta = config_.at("rope_theta").get<double>();
    for (size_t i = 0; i < row.size(); i += 2) {
        const double frequency =
            std::pow(theta, -static_cast<double>(i % head_dim) / static_cast<double>(head_dim));
        const double angle = static_cast<double>(position) * frequency;
        const double first = row[i];
        const double second = row[i + 1];
        row[i] = first * std::cos(angle) - second * std::sin(angle);
        row[i + 1] = second * std::cos(angle) + first * std::sin(angle);
    }
}

std::vector<ToyCheckpoint::Vector> ToyCheckpoint::attention(const std::string& layer,
                                                            const std::vector<Vector>& rows) const {
    const size_t head_dim = dim("head_dim");
    const size_t num_heads = dim("num_attention_heads");
    const size_t group = num_heads / dim("num_key_value_heads");
    std::vector<Vector> keys;
    std::vector<Vector> values;
    std::vector<Vector> out;
    for (size_t t = 0; t < rows.size(); ++t) {
        const Vector x = norm(layer + "input_layernorm.weight", rows[t]);
        Vector query = product(layer + "self_attn.q_proj.weight", x);
        rotate(query, t);
        keys.push_back(product(layer + "self_attn.k_proj.weight", x));
        rotate(keys.back(), t);
        values.push_back(product(layer + "self_attn.v_proj.weight", x));
        Vector heads(num_heads * head_dim);
        for (size_t h = 0; h < num_heads; ++h) {
            const size_t shared = h / group * head_dim;
            Vector weights(t + 1);
            double total = 0;
            for (size_t p = 0; p <= t; ++p) {
                double score = 0;
                for (size_t i = 0; i < head_dim; ++i) {
                    score += query[h * head_dim + i] * keys[p][shared + i];
                }
                total += weights[p] = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
            }
            for (size_t p = 0; p <= t; ++p) {
                for (size_t i = 0; i < head_dim; ++i) {
                    heads[h * head_dim + i] += weights[p] / total * values[p][shared + i];
                }
            }
        }
        out.push_back(product(layer + "self_attn.o_proj.weight", heads));
    }
    return out;
}

// All experts, weighted by the softmax over the top_k largest logits.
ToyCheckpoint::Vector ToyCheckpoint::experts(const std::string& layer, const Vector& x) const {
    const std::string moe = layer + "block_sparse_moe.";
    const Vector logits = product(moe + "gate.weight", x);
    Vector sorted = logits;
    std::ranges::sort(sorted, std::greater());
    const double smallest = sorted[dim("num_experts_per_tok") - 1];
    double total = 0;
    for (const double logit : logits) total += logit >= smallest ? std::exp(logit) : 0;
    Vector out(x.size());
    for (size_t e = 0; e < logits.size(); ++e) {
        if (logits[e] < smallest) continue;
        const std::string expert = moe + "experts." + std::to_string(e) + ".";
        Vector middle = product(expert + "w1.weight", x);
        const Vector up = product(expert + "w3.weight", x);
        for (size_t i = 0; i < up.size(); ++i) middle[i] *= up[i] / (1 + std::exp(-middle[i]));
        const Vector y = product(expert + "w2.weight", middle);
        for (size_t i = 0; i < y.size(); ++i) out[i] += std::exp(logits[e]) / total * y[i];
    }
    return out;
}

std::vector<double> ToyCheckpoint::logits(std::span<const int32_t> tokens) const {
    const Vector embedding = values("model.embed_tokens.weight");
    const auto hidden = static_cast<std::ptrdiff_t>(dim("hidden_size"));
    std::vector<Vector> rows;
    for (const int32_t token : tokens) {
        const auto begin = embedding.begin() + token * hidden;
        rows.emplace_back(begin, begin + hidden);
    }
    const auto add = [](Vector& row, const Vector& delta) {
        for (size_t i = 0; i < row.size(); ++i) row[i] += delta[i];
    };
    for (uint64_t index = 0; index < dim("num_hidden_layers"); ++index) {
        const std::string layer = "model.layers." + std::to_string(index) + ".";
        const std::vector<Vector> attended = attention(layer, rows);
        for (size_t t = 0; t < rows.size(); ++t) {
            add(rows[t], attended[t]);
            add(rows[t], experts(layer, norm(layer + "post_attention_layernorm.weight", rows[t])));
        }
    }
    Vector out;
    for (const Vector& row : rows) {
        const Vector logits = product("lm_head.weight", norm("model.norm.weight", row));
        out.insert(out.end(), logits.begin(), logits.end());
    }
    return out;
}

}  // namespace afd::model
