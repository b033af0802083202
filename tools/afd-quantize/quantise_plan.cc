// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/quantise_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "model/attention/attention_config.h"
#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_names.h"
#include "model/foreign/foreign_matrices.h"

namespace afd::tools {
namespace {

using model::StorageType;
using ops::WeightFormat;

// What can be read as bf16 without having lost what the original had, or is in the form of another
// program, whose original may be gone.
bool is_source(const model::ModelConfig& config) {
    const WeightFormat experts = config.quantisation.experts;
    // Attention in int8 without afd-quantize.
    if (config.form.kind == model::ForeignKind::kInt8Rows) return true;
    return config.quantisation.attention == WeightFormat::kBf16 &&
           (config.form.kind != model::ForeignKind::kNone || experts == WeightFormat::kBf16 ||
            experts == WeightFormat::kFp8Block128);
}

Result<> check(const model::ModelFiles& files, const model::QuantisationConfig& wanted) {
    const model::ModelConfig& config = files.config();
    if (!is_source(config)) {
        return Error{Code::kInvalidArgument,
                     fmt::format("{} is quantised already ({}); give the original",
                                 files.directory(),
                                 model::describe(config.quantisation))};
    }
    // Fused experts are copied as they are.
    const bool is_expanded = config.form.kind != model::ForeignKind::kNone &&
                             config.form.kind != model::ForeignKind::kFusedExperts;
    if (is_expanded && wanted.experts == WeightFormat::kBf16) {
        return Error{Code::kInvalidArgument,
                     files.directory() +
                         ": what is not quantised anew becomes bf16, and the experts are most of "
                         "it; give --experts int8 or int4, too"};
    }
    const auto formats = config.attention->formats();
    if (std::ranges::find(formats, wanted.attention) != formats.end()) return {};
    return Error{Code::kUnimplemented,
                 fmt::format("{}: the attention of models of type {} cannot be {}",
                             files.directory(),
                             config.model_type,
                             ops::name_of(wanted.attention))};
}

}  // namespace

Result<QuantisePlan> QuantisePlan::make(const model::ModelFiles& files,
                                        const model::QuantisationConfig& wanted,
                                        uint64_t shard_bytes) {
    AFD_TRY(check(files, wanted));
    QuantisePlan plan(files);
    plan.formats_ = wanted;
    if (wanted.experts == WeightFormat::kBf16) {
        plan.formats_.experts = files.config().quantisation.experts;
        plan.formats_.has_bf16_shared = files.config().quantisation.has_bf16_shared;
    }
    for (uint32_t layer = 0; layer < files.config().num_layers; ++layer) {
        if (wanted.experts != WeightFormat::kBf16) plan.add_experts(layer, wanted);
        if (wanted.attention != WeightFormat::kBf16) plan.add_attention(layer, wanted.attention);
    }
    std::ranges::sort(plan.replaced_);
    AFD_TRY(plan.add_rest());
    for (const QuantiseUnit& unit : plan.units_) {
        for (const PlannedMatrix& matrix : unit.matrices) {
            if (files.tensors().holds(matrix.name)) continue;
            return Error{Code::kNotFound,
                         files.directory() + ": tensor " + matrix.name +
                             " is missing from the weights; is the download complete?"};
        }
    }
    plan.lay_out(shard_bytes);
    return plan;
}

void QuantisePlan::add_experts(uint32_t layer, const model::QuantisationConfig& wanted) {
    const uint32_t num_experts = model::num_layer_experts(files_->config(), layer);
    for (uint32_t i = 0; i < num_experts; ++i) add_unit(expert(layer, i, wanted));
    const std::string fused = model::layer_tensor(layer, files_->config().names.experts) + ".";
    replaced_.insert(replaced_.end(), {fused + "gate_up_proj", fused + "down_proj"});
}

QuantiseUnit QuantisePlan::expert(uint32_t layer,
                                  uint32_t index,
                                  const model::QuantisationConfig& wanted) {
    const model::ModelConfig& config = files_->config();
    const model::TensorNames& names = config.names;
    const std::string prefix = model::expert_prefix(config, layer, index);
    const uint64_t hidden = config.hidden;
    const uint64_t width = model::expert_intermediate(config, layer, index);
    QuantiseUnit unit{.layer = layer};
    unit.matrices.push_back(matrix(prefix + names.gate, width, hidden, wanted.experts));
    unit.matrices.push_back(matrix(prefix + names.up, width, hidden, wanted.experts));
    unit.matrices.push_back(matrix(prefix + names.down, hidden, width, wanted.experts));
    if (model::is_routed_expert(config, layer, index)) take_from_fused(unit, index);
    if (!wanted.smooth) return unit;
    unit.matrices[0].is_smoothed = unit.matrices[1].is_smoothed = true;
    unit.smooth = add(prefix + "smooth_scale", StorageType::kF32, {hidden});
    return unit;
}

void QuantisePlan::take_from_fused(QuantiseUnit& unit, uint32_t index) const {
    const model::TensorStore& tensors = files_->tensors();
    const std::string fused = model::layer_tensor(unit.layer, files_->config().names.experts) + ".";
    // Those of another program's form are read by the names of single experts.
    const bool is_of_form = tensors.form().kind == model::ForeignKind::kFusedExperts;
    if (is_of_form || tensors.find(fused + "gate_up_proj") == nullptr) return;
    const uint64_t num_experts = files_->config().num_experts;
    const uint64_t hidden = files_->config().hidden;
    const uint64_t width = unit.matrices[0].num_rows;
    // [E, 2 I, hidden], rows of the gate first, and [E, hidden, I].
    for (uint64_t part = 0; part < 2; ++part) {
        unit.matrices[part].name = fused + "gate_up_proj";
        unit.matrices[part].shape = {num_experts, 2 * width, hidden};
        unit.matrices[part].first_row = (2 * index + part) * width;
    }
    unit.matrices[2].name = fused + "down_proj";
    unit.matrices[2].shape = {num_experts, hidden, width};
    unit.matrices[2].first_row = index * hidden;
}

void QuantisePlan::add_attention(uint32_t layer, WeightFormat format) {
    const model::ModelConfig& config = files_->config();
    for (const model::AttentionMatrix& stored : config.attention->matrices(config, layer)) {
        QuantiseUnit unit{.layer = layer};
        unit.matrices.push_back(matrix(stored.prefix, stored.num_outputs, stored.depth, format));
        add_unit(std::move(unit));
    }
}

// Every tensor that is not quantised, but for those that nobody would read.
Result<> QuantisePlan::add_rest() {
    const model::TensorStore& tensors = files_->tensors();
    const model::ForeignMatrices foreign = tensors.foreign();
    // Matrices in the form of another program become bf16, and their other tensors go.
    std::vector<std::string> parts;
    for (const model::TensorInfo* tensor : tensors.list()) {
        const auto weight = foreign.weight_of(tensor->name);
        if (!weight) continue;
        const auto names = foreign.tensors_of(*weight);
        parts.insert(parts.end(), names.begin(), names.end());
    }
    std::ranges::sort(parts);
    for (const model::TensorInfo* tensor : tensors.list()) {
        if (std::ranges::binary_search(replaced_, tensor->name)) continue;
        if (model::is_beyond_layers(tensor->name, files_->config().num_layers)) continue;
        if (const auto weight = foreign.weight_of(tensor->name)) {
            AFD_TRY(add_expanded(*weight));
            continue;
        }
        if (std::ranges::binary_search(parts, tensor->name)) continue;
        QuantiseUnit unit{.layer = files_->config().num_layers, .copied = tensor};
        unit.copy = add(tensor->name, tensor->dtype, tensor->shape);
        add_unit(std::move(unit));
    }
    return {};
}

Result<> QuantisePlan::add_expanded(const std::string& weight) {
    AFD_ASSIGN(const std::vector<uint64_t> shape, files_->tensors().foreign().shape_of(weight));
    QuantiseUnit unit{.layer = files_->config().num_layers};
    unit.matrices.push_back({.name = weight,
                             .shape = shape,
                             .num_rows = shape[0],
                             .format = WeightFormat::kBf16,
                             .values = add(weight, StorageType::kBf16, shape)});
    add_unit(std::move(unit));
    return {};
}

PlannedMatrix QuantisePlan::matrix(const std::string& prefix,
                                   uint64_t num_outputs,
                                   uint64_t depth,
                                   WeightFormat format) {
    const std::string name = prefix + ".weight";
    // A source in fp8 has scales of its own.
    replaced_.insert(replaced_.end(), {name, name + "_scale_inv"});
    const auto parts = files_->tensors().foreign().tensors_of(name);
    replaced_.insert(replaced_.end(), parts.begin(), parts.end());
    PlannedMatrix planned{
        .name = name, .shape = {num_outputs, depth}, .num_rows = num_outputs, .format = format};
    if (format == WeightFormat::kInt8) {
        planned.values = add(name, StorageType::kI8, {num_outputs, depth});
        planned.scales = add(name + "_scale", StorageType::kF32, {num_outputs});
        return planned;
    }
    planned.values = add(name, StorageType::kU8, {num_outputs, (depth + 1) / 2});
    planned.scales = add(name + "_scale",
                         model::int4_scale_type(format),
                         {num_outputs, model::int4_scale_columns(depth, format)});
    return planned;
}

size_t QuantisePlan::add(std::string name, StorageType dtype, std::vector<uint64_t> shape) {
    tensors_.push_back({{.name = std::move(name), .dtype = dtype, .shape = std::move(shape)}});
    return tensors_.size() - 1;
}

void QuantisePlan::add_unit(QuantiseUnit unit) {
    if (unit.copied != nullptr) unit.source_bytes = unit.copied->end - unit.copied->begin;
    for (const PlannedMatrix& matrix : unit.matrices) {
        unit.source_bytes += matrix.num_rows * matrix.depth() * sizeof(ops::Bf16);
    }
    units_.push_back(std::move(unit));
}

void QuantisePlan::lay_out(uint64_t shard_bytes) {
    for (size_t first = 0; first < tensors_.size();) {
        std::vector<model::TensorPlace> places;
        uint64_t bytes = 0;
        while (first + places.size() < tensors_.size() && bytes < shard_bytes) {
            places.push_back(tensors_[first + places.size()].place);
            bytes += *model::tensor_bytes(places.back().dtype, places.back().shape);
        }
        prefixes_.push_back(model::safetensors_prefix(places));
        sizes_.push_back(places.back().end);
        for (size_t i = 0; i < places.size(); ++i) {
            tensors_[first + i] = {std::move(places[i]), prefixes_.size() - 1};
        }
        first += places.size();
    }
}

std::string shard_name(size_t shard, size_t num_shards) {
    return num_shards == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}.safetensors", shard + 1);
}

std::string index_text(std::span<const PlannedTensor> tensors, size_t num_shards) {
    if (num_shards == 1) return "";
    using Json = nlohmann::ordered_json;
    uint64_t total_bytes = 0;
    Json weight_map = Json::object();
    // Appended to: a name that is set is looked for among all before it.
    auto& members = weight_map.get_ref<Json::object_t&>();
    members.reserve(tensors.size());
    for (const PlannedTensor& tensor : tensors) {
        total_bytes += tensor.place.end - tensor.place.begin;
        members.emplace_back(tensor.place.name, shard_name(tensor.shard, num_shards));
    }
    Json index;
    index["metadata"] = {{"total_size", total_bytes}};
    index["weight_map"] = std::move(weight_map);
    return index.dump(2) + "\n";
}

uint64_t QuantisePlan::source_bytes() const {
    uint64_t total = 0;
    for (const QuantiseUnit& unit : units_) total += unit.source_bytes;
    return total;
}

uint64_t QuantisePlan::result_bytes() const {
    uint64_t total = 0;
    for (const PlannedTensor& tensor : tensors_) total += tensor.place.end - tensor.place.begin;
    return total;
}

}  // namespace afd::tools
