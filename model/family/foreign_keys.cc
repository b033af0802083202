// SPDX-License-Identifier: Apache-2.0
#include "model/family/foreign_keys.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ops/format/weight_format.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;
using ops::WeightFormat;

constexpr uint32_t kGroupMax = 1u << 16;

// A number of elements, or -1 for all of a row, which is 0 here.
uint32_t read_group(KeyReader& keys, const char* key, std::optional<uint32_t> fallback) {
    const Json* value = keys.find(key);
    if (value != nullptr && *value == -1) return 0;
    return keys.count(key, 1, kGroupMax, fallback);
}

void require(KeyReader& keys, const char* key, const Json& served, bool may_be_absent) {
    const Json* value = keys.find(key);
    if (value == nullptr ? may_be_absent : *value == served) return;
    refuse_foreign(keys, key, served.dump());
}

// "-:" takes modules out, which their tensors say as well; others would have other bits. GPTQModel
// writes it into files of both methods.
void refuse_other_bits(KeyReader& keys) {
    const Json* dynamic = keys.find("dynamic");
    if (dynamic == nullptr || dynamic->empty()) return;
    bool has_others = !dynamic->is_object();
    for (const auto& [pattern, settings] : dynamic->items()) {
        has_others = has_others || !pattern.starts_with("-:");
    }
    if (has_others) refuse_foreign(keys, "dynamic", "none, or exceptions that begin with -:");
}

void read_gptq(KeyReader& keys, ModelConfig& config) {
    require(keys, "bits", 4, false);
    config.form.kind = ForeignKind::kGptq;
    config.form.group = read_group(keys, "group_size", 128);
    // With static groups columns are taken out of order but stay in their groups.
    const bool has_order = keys.flag("desc_act", false) && !keys.flag("static_groups", false);
    // Columns of one group have no order to be taken out of.
    config.form.is_in_order = !has_order || config.form.group == 0;
    config.form.is_symmetric = keys.flag("sym", true);
    const std::string format =
        keys.choice("checkpoint_format", "gptq", {"gptq", "gptq_v2"}, kForeignRemedy);
    config.form.has_zeros_less_one = format == "gptq";
    refuse_other_bits(keys);
}

void read_awq(KeyReader& keys, ModelConfig& config) {
    require(keys, keys.find("w_bit") != nullptr ? "w_bit" : "bits", 4, false);
    config.form.kind = ForeignKind::kAwq;
    config.form.group =
        read_group(keys, keys.find("q_group_size") != nullptr ? "q_group_size" : "group_size", 128);
    config.form.is_in_order = true;
    // Without zero points the tensors hold 0 for them, or the middle: they say which.
    keys.flag("zero_point", true);
    keys.choice("version", "gemm", {"gemm", "GEMM"}, kForeignRemedy);
    refuse_other_bits(keys);
}

// What all groups of a compressed-tensors file say of their weights, or null.
const Json* weights_of_groups(KeyReader& keys) {
    const Json* groups = keys.find("config_groups");
    if (groups == nullptr || !groups->is_object() || groups->empty()) {
        refuse_foreign(keys, "config_groups", "an object");
        return nullptr;
    }
    const Json* first = nullptr;
    for (const Json& group : *groups) {
        const Json* weights =
            group.is_object() && group.contains("weights") ? &group.at("weights") : nullptr;
        const bool is_same = first == nullptr || (weights != nullptr && *weights == *first);
        if (weights == nullptr || !weights->is_object() || !is_same) {
            refuse_foreign(keys, "config_groups", "groups with the same \"weights\"");
            return nullptr;
        }
        first = weights;
    }
    return first;
}

void read_int4_weights(KeyReader& weights, ModelConfig& config) {
    require(weights, "num_bits", 4, false);
    require(weights, "type", "int", true);
    const std::string strategy =
        weights.choice("strategy", "group", {"group", "channel"}, kForeignRemedy);
    config.form.group = strategy == "group" ? read_group(weights, "group_size", {}) : 0;
    // "group", "dynamic" and true: groups are of columns that were far apart. With the others
    // columns are taken out of order but stay in their groups.
    const Json* order = weights.find("actorder");
    const bool has_order =
        order != nullptr && *order != false && *order != "static" && *order != "weight";
    config.form.is_in_order = !has_order || config.form.group == 0;
    config.form.is_symmetric = weights.flag("symmetric", true);
}

// Rows that int8 weights meet here are quantised one by one as they come, and nothing else is.
void read_int8_groups(KeyReader& keys, KeyReader& weights, ModelConfig& config) {
    config.form.kind = ForeignKind::kInt8Rows;
    require(weights, "num_bits", 8, false);
    require(weights, "type", "int", true);
    require(weights, "symmetric", true, true);
    require(weights, "strategy", "channel", false);
    require(weights, "dynamic", false, true);
    for (const Json& group : *keys.find("config_groups")) {
        KeyReader inner(group, keys.origin() + ": config_groups");
        const Json* rows = inner.find("input_activations");
        if (rows == nullptr || !rows->is_object()) {
            refuse_foreign(
                inner, "input_activations", "an object (int8 weights multiply int8 activations)");
        } else {
            KeyReader activations(*rows, inner.origin() + ": input_activations");
            require(activations, "num_bits", 8, false);
            require(activations, "type", "int", true);
            require(activations, "symmetric", true, true);
            require(activations, "dynamic", true, false);
            require(activations, "strategy", "token", false);
            inner.adopt(activations);
        }
        if (inner.find("output_activations") != nullptr) {
            refuse_foreign(inner, "output_activations", "none");
        }
        keys.adopt(inner);
    }
}

// Weights that were rotated need rotations of activations, in each layer while it runs.
void refuse_transforms(KeyReader& keys) {
    const Json* transforms = keys.find("transform_config");
    if (transforms == nullptr || transforms->empty()) return;
    refuse_foreign(keys, "transform_config", "none (activations are multiplied as they are)");
}

void read_compressed(KeyReader& keys, ModelConfig& config) {
    const std::string format =
        keys.choice("format",
                    "",
                    {"float-quantized", "int-quantized", "pack-quantized", "mxfp4-pack-quantized"},
                    kForeignRemedy);
    if (keys.find("kv_cache_scheme") != nullptr) {
        refuse_foreign(keys, "kv_cache_scheme", "none (kv_dtype of afdd decides)");
    }
    refuse_transforms(keys);
    const Json* weights = weights_of_groups(keys);
    if (weights == nullptr) return;
    KeyReader inner(*weights, keys.origin() + ": config_groups: weights");
    if (format == "float-quantized") {
        config.form.kind = ForeignKind::kFp8Scaled;
        require(inner, "num_bits", 8, false);
        require(inner, "type", "float", false);
        inner.choice("strategy", "tensor", {"tensor", "channel", "block"}, kForeignRemedy);
    } else if (format == "int-quantized") {
        read_int8_groups(keys, inner, config);
    } else if (format == "pack-quantized") {
        config.form.kind = ForeignKind::kPackedInt4;
        read_int4_weights(inner, config);
    } else {
        config.form.kind = ForeignKind::kMxfp4;
        require(inner, "num_bits", 4, false);
        require(inner, "type", "float", false);
        require(inner, "group_size", 32, false);
    }
    keys.adopt(inner);
}

}  // namespace

void refuse_foreign(KeyReader& keys, const char* key, const std::string& supported) {
    keys.refuse(Code::kUnimplemented, key, supported + kForeignRemedy);
}

bool is_foreign_method(const std::string& quant_method) {
    return quant_method == "compressed-tensors" || quant_method == "gptq" || quant_method == "awq";
}

void read_foreign_quantisation(KeyReader& keys, const Json& object, ModelConfig& config) {
    KeyReader inner(object, keys.origin() + ": quantization_config");
    const std::string method = object.at("quant_method").get<std::string>();
    if (method == "gptq") {
        read_gptq(inner, config);
    } else if (method == "awq") {
        read_awq(inner, config);
    } else {
        read_compressed(inner, config);
    }
    keys.adopt(inner);
    const Json* dtype = keys.find(keys.find("dtype") != nullptr ? "dtype" : "torch_dtype");
    const bool has_fp16 = dtype != nullptr && *dtype == "float16";
    config.quantisation.experts = config.form.kind == ForeignKind::kInt8Rows
                                      ? WeightFormat::kInt8
                                      : int4_format_of(config.form, has_fp16);
}

WeightFormat int4_format_of(const ForeignForm& form, bool has_fp16_scales) {
    if (!form.is_int4() || !form.is_in_order) return WeightFormat::kBf16;
    if (form.group % 64 != 0 && form.group != 32) return WeightFormat::kBf16;
    const auto choose = [&](WeightFormat bf16, WeightFormat fp16) {
        return has_fp16_scales ? fp16 : bf16;
    };
    using enum WeightFormat;
    if (form.group == 32) {
        return form.is_symmetric ? choose(kInt4Group32, kInt4Group32Fp16)
                                 : choose(kInt4Group32Zero, kInt4Group32Fp16Zero);
    }
    return form.is_symmetric ? choose(kInt4Group64, kInt4Group64Fp16)
                             : choose(kInt4Group64Zero, kInt4Group64Fp16Zero);
}

}  // namespace afd::model
