// SPDX-License-Identifier: Apache-2.0
#pragma once

// The quantization_config of programs other than afd-quantize: compressed-tensors, GPTQ and AWQ,
// as far as their matrices are read (model/foreign/foreign_form.h).

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/checkpoint/config.h"
#include "model/json/key_reader.h"
#include "ops/format/weight_format.h"

namespace afd::model {

// Refuses the key as kUnimplemented, with kForeignRemedy.
void refuse_foreign(KeyReader& keys, const char* key, const std::string& supported);

// Whether read_foreign_quantisation() knows this quant_method.
bool is_foreign_method(const std::string& quant_method);

// Sets config.form, and config.quantisation.experts where a format of ours has the same values:
// int8, or int4 in groups of 32 or a multiple of 64, in order, with the scales that `torch_dtype`
// suggests.
// Which experts that is true of: model/family/expert_formats.h.
// Problems stay in `keys`. REQUIRES: is_foreign_method() of its quant_method.
void read_foreign_quantisation(KeyReader& keys, const nlohmann::json& object, ModelConfig& config);

// Our int4 with the values of this form, or bf16.
ops::WeightFormat int4_format_of(const ForeignForm& form, bool has_fp16_scales);

}  // namespace afd::model
