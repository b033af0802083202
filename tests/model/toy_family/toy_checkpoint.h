// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyCheckpoint: a small random checkpoint of the toy family, and what its forward pass is: plain
// loops over doubles, straight from the tensors, which share no code with model/ or ops/.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "ops/tensor/bf16.h"

namespace afd::model {

// 2 layers, hidden 48, 6 heads over 2 of keys and values, 4 experts that all are chosen.
nlohmann::json toy_config();

class ToyCheckpoint {
  public:
    // Makes all tensors that `config` asks for.
    explicit ToyCheckpoint(nlohmann::json config, uint32_t seed = 1);

    void remove(const std::string& name) { tensors_.erase(name); }

    // Writes config.json and model.safetensors into `directory`.
    void write(const std::string& directory) const;

    // Logits of every position, [tokens.size(), vocab_size]. Nothing is rounded.
    std::vector<double> logits(std::span<const int32_t> tokens) const;

  private:
    using Vector = std::vector<double>;

    struct Tensor {
        std::vector<uint64_t> shape;
        std::vector<ops::Bf16> values;
    };

    uint64_t dim(const char* key) const { return config_.at(key).get<uint64_t>(); }
    void add(const std::string& name, std::vector<uint64_t> shape, uint32_t seed);
    Vector values(const std::string& name) const;
    Vector product(const std::string& name, const Vector& x) const;
    Vector norm(const std::string& name, const Vector& x) const;
    void rotate(Vector& row, size_t position) const;
    std::vector<Vector> attention(const std::string& layer, const std::vector<Vector>& rows) const;
    Vector experts(const std::string& layer, const Vector& x) const;

    nlohmann::json config_;
    std::map<std::string, Tensor> tensors_;
};

}  // namespace afd::model
