// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelFiles: a checkpoint directory in Hugging Face's layout, opened and validated: the
// configuration, the generation defaults and where every tensor lies. No weights are loaded.

#include <algorithm>
#include <cstdint>
#include <string>

#include "model/checkpoint/config.h"
#include "model/checkpoint/generation_config.h"
#include "model/checkpoint/tensor_store.h"
#include "proto/status.h"

namespace afd::model {

// What kv_dtype = int8_channel needs beside the weights: of each layer the two tensors of
// mla_tensors.h.
inline constexpr const char* kKvScalesFile = "kv_scales.safetensors";

class ModelFiles {
  public:
    // Errors: kNotFound (the directory, config.json or the weights; says what was found instead),
    // and those of the parsers; kUnimplemented for a file in which another program says how it has
    // quantised the model, and for a way to keep keys and values that the model's kind of attention
    // lacks; kNotFound where it needs kKvScalesFile. `kv` becomes
    // config().quantisation.kv; of identity() it is no part, but that file is, where it is used.
    static Result<ModelFiles> open(const std::string& directory,
                                   ops::KvDtype kv = ops::KvDtype::kBf16);

    // The residual stream's type, before anything is loaded; bf16 if nobody says otherwise.
    void set_residual(ResidualType type) { config_.residual = type; }

    // What int4 experts multiply, before anything is loaded; bf16 if nobody says otherwise.
    // Errors: kInvalidArgument: int8 for experts that are not int4.
    Result<> set_int4_rows(ops::Int4Rows rows);

    // Only the first `tokens` positions of the context are used: tables of positions are made no
    // longer, which at the longest contexts are a gigabyte. Before anything is loaded; the bits of
    // these positions stay.
    void limit_context(uint32_t tokens) {
        config_.context_length = std::min(config_.context_length, tokens);
    }

    const std::string& directory() const { return directory_; }
    const ModelConfig& config() const { return config_; }
    // config.json as it was read.
    const std::string& config_text() const { return config_text_; }
    const GenerationConfig& generation() const { return generation_; }
    const TensorStore& tensors() const { return tensors_; }

    // What of the checkpoint is not used, a line; empty if nothing. For programs to say at start.
    std::string unused_text() const;

    // 16 hexadecimal digits: FNV-1a of config.json, the tensor index and sampled bytes of every
    // tensor. Equal for equal directories; tells workers with different weights apart, and is no
    // defence against someone who wants a collision.
    const std::string& identity() const { return identity_; }

    // The same without kKvScalesFile: what experts depend on, whatever `kv` is.
    const std::string& weights_identity() const { return weights_identity_; }

  private:
    ModelFiles() = default;

    std::string directory_;
    std::string config_text_;
    ModelConfig config_;
    GenerationConfig generation_;
    TensorStore tensors_;
    std::string weights_identity_;
    std::string identity_;
};

// The configuration alone, for callers that need no weights (config.json of `directory`).
Result<ModelConfig> load_model_config(const std::string& directory,
                                      ops::KvDtype kv = ops::KvDtype::kBf16);

// The tensors of `directory`, after which `config` has their names and formats.
// Errors: those of TensorStore::open(); kInvalidArgument: there are shared experts that `config`
// lacks.
Result<TensorStore> open_tensors(const std::string& directory, ModelConfig& config);

// ModelFiles::set_int4_rows, for a configuration alone.
Result<> set_int4_rows(ops::Int4Rows rows, QuantisationConfig& quantisation);

// The generation defaults alone; the file is optional.
Result<GenerationConfig> load_generation_config(const std::string& directory,
                                                const ModelConfig& config);

}  // namespace afd::model
