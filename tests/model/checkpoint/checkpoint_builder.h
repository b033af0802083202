// SPDX-License-Identifier: Apache-2.0
#pragma once

// CheckpointBuilder: writes a small random checkpoint in Hugging Face's layout. Weights are normal
// with variance 1 / inputs, so activations stay near 1; the same seed gives the same bytes.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/safetensors/safetensors_writer.h"
#include "model/safetensors/tensor_files.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/e4m3.h"

namespace afd::model {

// A DeepSeek-V3 in small: 3 layers, the first dense, 8 experts in 4 groups, a shared one.
nlohmann::json small_config();

class CheckpointBuilder {
  public:
    // Makes all tensors that `config` asks for.
    explicit CheckpointBuilder(nlohmann::json config, uint32_t seed = 1);

    nlohmann::json& config() { return config_; }

    // The tensor's elements, to be changed before write().
    std::vector<ops::Bf16>& tensor(const std::string& name);
    void add(const std::string& name, std::vector<uint64_t> shape);
    // A tensor of I32 values.
    void add_integers(const std::string& name,
                      std::vector<uint64_t> shape,
                      std::vector<int32_t> values);
    // Stores the tensor as F32 with these elements, which tensor() does not show.
    void store_as_f32(const std::string& name, std::vector<float> values);
    void rename(const std::string& from, const std::string& to);
    void remove(const std::string& name);
    void reshape(const std::string& name, std::vector<uint64_t> shape);

    // Replaces experts.<e>.* of every layer by experts.gate_up_proj and experts.down_proj.
    void fuse_experts();

    // Makes it the text model of a model of text and images: names begin as `prefix` says, the keys
    // are in text_config, and there is a tensor of 48 elements of another part.
    void wrap(const NamePrefix& prefix);

    // Turns every projection into e4m3 with fp32 scales for its blocks of 128 x 128, or with powers
    // of two, and says so in the configuration. Those with `kept` in their names stay.
    void store_as_fp8(bool has_powers = false, const std::string& kept = "");

    // Turns every projection of an MLP into int4 as compressed-tensors packs it, in groups of 32
    // with bf16 scales of either sign, and says so in the configuration. Those with `kept` in their
    // names stay. REQUIRES: depths are multiples of 8.
    void store_as_packed_int4(const std::string& kept = "");

    // Turns every projection into int8 as compressed-tensors stores it, with a bf16 scale for each
    // row, and says so in the configuration. Those with `kept` in their names stay. `is_ours`: the
    // same numbers as afd-quantize stores them, kv_b_proj expanded to bf16.
    void store_as_int8(const std::string& kept = "", bool is_ours = false);

    // Writes config.json and model.safetensors into `directory`.
    void write(const std::string& directory) const;

  private:
    struct Tensor {
        std::string name;
        std::vector<uint64_t> shape;
        std::vector<ops::Bf16> values;
        std::vector<int32_t> integers;  // Instead of values, or empty, as the others:
        std::vector<ops::E4m3> fp8 = {};
        std::vector<int8_t> int8 = {};
        std::vector<float> floats = {};
        std::vector<uint8_t> exponents = {};  // ue8m0
    };

    static TensorToWrite to_write(const Tensor& tensor);
    uint64_t dim(const char* key) const { return config_.at(key).get<uint64_t>(); }
    float next_normal();
    void add_layer(uint64_t layer);
    void add_mlp(const std::string& prefix, uint64_t intermediate);
    size_t index_of(const std::string& name) const;

    nlohmann::json config_;
    uint64_t random_;
    std::vector<Tensor> tensors_;
};

// Writes factors for kv_dtype = int8_channel beside a checkpoint. They cut nothing off: latents are
// normalised.
void write_kv_factors(const std::string& directory, const ModelConfig& config);

}  // namespace afd::model
