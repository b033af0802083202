// SPDX-License-Identifier: Apache-2.0
#pragma once

// QuantisePlan: what a quantised checkpoint will hold, and where: known from config.json and the
// source's headers before a weight is read. So a shard's header is written first, its tensors in
// any order behind it, and nothing but the rows at work is in memory.
//
// The work is a list of units (an expert, a matrix of the attention, a tensor to copy), done in
// this order; what a unit writes depends on the source alone.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/family/model_files.h"
#include "model/safetensors/safetensors_writer.h"
#include "ops/format/weight_format.h"
#include "proto/status.h"

namespace afd::tools {

// A shard of the result is closed when it holds this much.
inline constexpr uint64_t kShardBytes = uint64_t{4} << 30;

// One tensor of the result.
struct PlannedTensor {
    model::TensorPlace place;
    size_t shard = 0;
};

// "model.safetensors", or "model-00001.safetensors" of several.
std::string shard_name(size_t shard, size_t num_shards);

// model.safetensors.index.json; empty for a single file.
std::string index_text(std::span<const PlannedTensor> tensors, size_t num_shards);

// A matrix of the source and the tensors that its quantised form takes. They are numbers of
// QuantisePlan::tensors.
struct PlannedMatrix {
    std::string name;             // Of the source's tensor.
    std::vector<uint64_t> shape;  // That tensor's.
    uint64_t first_row = 0;       // In it, its leading dimensions taken as one.
    uint64_t num_rows = 0;
    ops::WeightFormat format = ops::WeightFormat::kInt8;  // bf16: expanded only.
    bool is_smoothed = false;  // Its columns are multiplied by the expert's scales first.
    size_t values = 0;
    size_t scales = 0;

    uint64_t depth() const { return shape.back(); }
};

struct QuantiseUnit {
    uint32_t layer = 0;
    std::vector<PlannedMatrix> matrices = {};
    std::optional<size_t> smooth = {};          // Tensor of the expert's smooth scales.
    const model::TensorInfo* copied = nullptr;  // Instead of matrices: a tensor as it is.
    size_t copy = 0;                            // Where to.
    uint64_t source_bytes = 0;
};

class QuantisePlan {
  public:
    // REQUIRES: files outlives the plan. Errors: kInvalidArgument (the model is quantised already),
    // kUnimplemented (its attention cannot be in that format), kNotFound (a tensor is missing).
    static Result<QuantisePlan> make(const model::ModelFiles& files,
                                     const model::QuantisationConfig& wanted,
                                     uint64_t shard_bytes = kShardBytes);

    const std::vector<QuantiseUnit>& units() const { return units_; }
    const std::vector<PlannedTensor>& tensors() const { return tensors_; }

    size_t num_shards() const { return prefixes_.size(); }
    std::string shard_name(size_t shard) const { return tools::shard_name(shard, num_shards()); }
    // What the shard begins with, and its size.
    const std::string& shard_prefix(size_t shard) const { return prefixes_[shard]; }
    uint64_t shard_bytes(size_t shard) const { return sizes_[shard]; }
    std::string index_text() const { return tools::index_text(tensors_, num_shards()); }

    // As written: experts that were in fp8 may have stayed.
    const model::QuantisationConfig& formats() const { return formats_; }
    uint64_t source_bytes() const;
    uint64_t result_bytes() const;

  private:
    explicit QuantisePlan(const model::ModelFiles& files) : files_(&files) {}

    void add_experts(uint32_t layer, const model::QuantisationConfig& wanted);
    void add_attention(uint32_t layer, ops::WeightFormat format);
    Result<> add_rest();
    Result<> add_expanded(const std::string& weight);
    PlannedMatrix matrix(const std::string& prefix,
                         uint64_t num_outputs,
                         uint64_t depth,
                         ops::WeightFormat format);
    QuantiseUnit expert(uint32_t layer, uint32_t expert, const model::QuantisationConfig& wanted);
    // Where the source has the routed experts of a layer in one tensor, the unit's three matrices
    // are parts of that.
    void take_from_fused(QuantiseUnit& unit, uint32_t expert) const;
    size_t add(std::string name, model::StorageType dtype, std::vector<uint64_t> shape);
    void add_unit(QuantiseUnit unit);
    void lay_out(uint64_t shard_bytes);

    const model::ModelFiles* files_;
    model::QuantisationConfig formats_;
    std::vector<QuantiseUnit> units_;
    std::vector<PlannedTensor> tensors_;
    std::vector<std::string> replaced_;  // Tensors of the source, sorted.
    std::vector<std::string> prefixes_;
    std::vector<uint64_t> sizes_;
};

}  // namespace afd::tools
