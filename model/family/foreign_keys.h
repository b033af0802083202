// SPDX-License-Identifier: Apache-2.0
#pragma once

// The quantization_config of programs other than afd-quantize: compressed-tensors, GPTQ and AWQ,
// as far as their matrices are read (model/checkpoint/foreign_form.h).

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/checkpoint/config.h"
#include "model/checkpoint/key_reader.h"
#include "model/checkpoint/tensor_store.h"

namespace afd::model {

// Whether read_foreign_quantisation() knows this quant_method.
bool is_foreign_method(const std::string& quant_method);

// Sets config.form, and config.quantisation.experts where a format of ours has the same values:
// symmetric int4 in groups of 32 or a multiple of 64, with the scales that `torch_dtype` suggests.
// Problems stay in `keys`. REQUIRES: is_foreign_method() of its quant_method.
void read_foreign_quantisation(KeyReader& keys, const nlohmann::json& object, ModelConfig& config);

// What the tensors say beyond that: all experts in one format, and with which scales. Where some
// are not in int4 all are expanded to bf16; so are those of gpt-oss where some are not in mxfp4.
void settle_expert_format(const TensorStore& tensors, ModelConfig& config);

}  // namespace afd::model
