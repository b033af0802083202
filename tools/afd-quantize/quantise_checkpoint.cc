// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/quantise_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/checkpoint/matrix_quantiser.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/family/text_config.h"
#include "model/safetensors/whole_file.h"
#include "ops/format/weight_format.h"
#include "tools/afd-quantize/result_files.h"

namespace afd::tools {
namespace {

namespace fs = std::filesystem;
using model::StoredMatrix;
using ops::WeightFormat;

// Raised when the same job would give other bytes than before: then it is another job.
constexpr int kRevision = 4;

// A task reads about so much as bf16; with what it makes of it a thread takes a few times as much.
constexpr uint64_t kTaskBytes = uint64_t{2} << 20;

// Some rows of a matrix, or some bytes of a tensor to copy.
struct Part {
    size_t unit = 0;    // In the batch.
    size_t matrix = 0;  // In the unit.
    uint64_t first = 0;
    uint64_t count = 0;
};

class Quantiser {
  public:
    Quantiser(const model::ModelFiles& files,
              const ChannelRanges& ranges,
              const ResultFiles& results,
              ops::Parallel& parallel)
        : files_(files), ranges_(ranges), results_(results), parallel_(parallel) {}

    // Units [first, last) of the plan.
    Result<> run(std::span<const QuantiseUnit> units) {
        smooth_.assign(units.size(), {});
        AFD_TRY(for_all(units.size(), [&](size_t i) { return smooth(units[i], smooth_[i]); }));
        const std::vector<Part> parts = cut(units);
        AFD_TRY(for_all(parts.size(), [&](size_t i) {
            const QuantiseUnit& unit = units[parts[i].unit];
            return unit.copied != nullptr ? copy(unit, parts[i])
                                          : quantise(unit.matrices[parts[i].matrix], parts[i]);
        }));
        return results_.sync();
    }

  private:
    // The first problem in order and not in time, so that the message does not depend on threads.
    template <typename Body>
    Result<> for_all(size_t count, const Body& body) {
        std::mutex mutex;
        std::optional<std::pair<size_t, Error>> problem;
        parallel_.run(count, [&](size_t task, unsigned) {
            const Result<> result = body(task);
            if (result.ok()) return;
            const std::scoped_lock lock(mutex);
            if (!problem || task < problem->first) problem.emplace(task, result.error());
        });
        if (problem) return problem->second;
        return {};
    }

    static uint64_t rows_of_part(const PlannedMatrix& matrix) {
        // Whole blocks of fp8.
        const uint64_t rows = kTaskBytes / (matrix.depth() * sizeof(ops::Bf16));
        return std::max<uint64_t>(1, rows / ops::kFp8BlockEdge) * ops::kFp8BlockEdge;
    }

    static std::vector<Part> cut(std::span<const QuantiseUnit> units) {
        std::vector<Part> parts;
        const auto add = [&](size_t unit, size_t matrix, uint64_t total, uint64_t step) {
            for (uint64_t first = 0; first < total; first += step) {
                parts.push_back({unit, matrix, first, std::min(step, total - first)});
            }
        };
        for (size_t i = 0; i < units.size(); ++i) {
            if (units[i].copied != nullptr) add(i, 0, units[i].source_bytes, kTaskBytes);
            for (size_t m = 0; m < units[i].matrices.size(); ++m) {
                const PlannedMatrix& matrix = units[i].matrices[m];
                add(i, m, matrix.num_rows, rows_of_part(matrix));
            }
        }
        return parts;
    }

    Result<std::vector<ops::Bf16>> read(const PlannedMatrix& matrix,
                                        uint64_t first,
                                        uint64_t count) const {
        return files_.tensors().read_bf16_rows(
            matrix.name, matrix.shape, matrix.first_row + first, count);
    }

    // The scales of an expert, and their tensor.
    Result<> smooth(const QuantiseUnit& unit, std::vector<float>& scales) const {
        if (!unit.smooth) return {};
        std::vector<float> largest(files_.config().hidden, 0.0f);
        for (const PlannedMatrix& matrix : unit.matrices) {
            const uint64_t step = rows_of_part(matrix);
            for (uint64_t first = 0; matrix.is_smoothed && first < matrix.num_rows; first += step) {
                AFD_ASSIGN(const auto rows,
                           read(matrix, first, std::min(step, matrix.num_rows - first)));
                widen_columns(rows, largest);
            }
        }
        scales = smooth_scales(ranges_[unit.layer], largest);
        return results_.write(*unit.smooth, 0, std::as_bytes(std::span(scales)));
    }

    Result<> copy(const QuantiseUnit& unit, const Part& part) const {
        std::vector<std::byte> bytes(part.count);
        AFD_TRY(files_.tensors().read_bytes(*unit.copied, part.first, bytes));
        return results_.write(unit.copy, part.first, bytes);
    }

    Result<> quantise(const PlannedMatrix& matrix, const Part& part) const {
        AFD_ASSIGN(std::vector<ops::Bf16> rows, read(matrix, part.first, part.count));
        if (matrix.format == WeightFormat::kBf16) {
            const auto bytes = std::as_bytes(std::span(rows));
            return results_.write(matrix.values, part.first * (bytes.size() / part.count), bytes);
        }
        if (matrix.is_smoothed) smooth_columns(rows, smooth_[part.unit]);
        const auto made = model::quantise_matrix(
            ops::make_rows<const ops::Bf16>(rows.data(), part.count, matrix.depth()),
            matrix.format,
            matrix.first_row + part.first);
        if (!made.ok()) {
            return Error{made.error().code, "tensor " + matrix.name + ": " + made.error().message};
        }
        return write(matrix, part, made.value());
    }

    Result<> write(const PlannedMatrix& matrix, const Part& part, const StoredMatrix& made) const {
        const auto write_rows = [&](size_t tensor, const auto& values) {
            const auto bytes = std::as_bytes(std::span(values));
            return results_.write(tensor, part.first * (bytes.size() / part.count), bytes);
        };
        if (matrix.format == WeightFormat::kInt8) {
            AFD_TRY(write_rows(matrix.values, made.int8));
            return write_rows(matrix.scales, made.int8_scale);
        }
        AFD_TRY(write_rows(matrix.values, made.int4));
        return write_rows(matrix.scales, made.int4_scale);
    }

    const model::ModelFiles& files_;
    const ChannelRanges& ranges_;
    const ResultFiles& results_;
    ops::Parallel& parallel_;
    std::vector<std::vector<float>> smooth_;  // Of the units of the batch.
};

Result<> write_text(const std::string& path, const std::string& text) {
    return model::write_whole_file(path, std::as_bytes(std::span(text)));
}

// That of the source, which may have another text by now, with what its weights have become.
Result<> write_config(const model::ModelFiles& files,
                      const std::string& to,
                      const model::QuantisationConfig& wanted) {
    auto config = nlohmann::ordered_json::parse(files.config_text(), nullptr, false);
    AFD_ASSERT(config.is_object(), "a configuration of %zu bytes", files.config_text().size());
    // The tensors have the names that the text model alone would give them.
    if (model::has_text_config(config)) config = model::text_model_of(config);
    config["quantization_config"] = {{"quant_method", "afd"},
                                     {"experts", ops::name_of(wanted.experts)},
                                     {"attention", ops::name_of(wanted.attention)}};
    if (wanted.smooth) config["quantization_config"]["smooth"] = true;
    return write_text(to + "/config.json", config.dump(2) + "\n");
}

// With none of the units, nor what makes a result load.
Result<> begin_anew(ResultDirectory& directory) {
    std::error_code error;
    fs::remove(directory.path() + "/config.json", error);
    if (error) {
        return Error{Code::kUnavailable,
                     directory.path() + "/config.json: cannot be removed: " + error.message()};
    }
    return directory.set_units_done(0);
}

// The units of the next batch, from `first` on.
std::span<const QuantiseUnit> next_batch(const QuantisePlan& plan,
                                         size_t first,
                                         uint64_t batch_bytes) {
    const std::span<const QuantiseUnit> left = std::span(plan.units()).subspan(first);
    uint64_t bytes = 0;
    size_t count = 0;
    while (count < left.size() && bytes < batch_bytes) bytes += left[count++].source_bytes;
    return left.first(count);
}

}  // namespace

std::string describe_job(const model::ModelFiles& files,
                         const model::QuantisationConfig& wanted,
                         const std::string& smooth_text,
                         uint64_t shard_bytes) {
    return fmt::format("model {}, {}{}, shards of {} bytes, revision {}",
                       files.identity(),
                       model::describe(wanted),
                       smooth_text.empty() ? "" : " by text " + smooth_text,
                       shard_bytes,
                       kRevision);
}

Result<QuantiseResult> quantise_checkpoint(const model::ModelFiles& files,
                                           const model::QuantisationConfig& wanted,
                                           const CompanionFiles& companions,
                                           ResultDirectory& directory,
                                           ops::Parallel& parallel,
                                           const std::function<void(uint64_t)>& progress,
                                           const QuantiseLimits& limits,
                                           const ChannelRanges& ranges) {
    AFD_ASSERT(!wanted.smooth || (ranges.size() == files.config().num_layers &&
                                  wanted.experts == WeightFormat::kInt8),
               "ranges of %zu layers of %u, for int8 experts",
               ranges.size(),
               files.config().num_layers);
    AFD_ASSIGN(const QuantisePlan plan, QuantisePlan::make(files, wanted, limits.shard_bytes));
    const bool goes_on = directory.units_done() > 0 &&
                         directory.units_done() <= plan.units().size() &&
                         ResultFiles::exist(plan, directory.path());
    // Before the shards are emptied: who is interrupted now must not be gone on with.
    if (!goes_on) AFD_TRY(begin_anew(directory));
    AFD_ASSIGN(const ResultFiles results, ResultFiles::open(plan, directory.path(), goes_on));
    AFD_TRY(companions.write(directory.path()));
    Quantiser quantiser(files, ranges, results, parallel);
    uint64_t bytes_done = 0;
    size_t done = 0;
    const auto pass = [&](std::span<const QuantiseUnit> units) {
        for (const QuantiseUnit& unit : units) bytes_done += unit.source_bytes;
        done += units.size();
        progress(bytes_done);
    };
    if (goes_on) pass(std::span(plan.units()).first(directory.units_done()));
    while (done < plan.units().size()) {
        const auto batch = next_batch(plan, done, limits.batch_bytes);
        AFD_TRY(quantiser.run(batch));
        pass(batch);
        AFD_TRY(directory.set_units_done(done));
    }
    if (const std::string index = plan.index_text(); !index.empty()) {
        AFD_TRY(write_text(directory.path() + "/model.safetensors.index.json", index));
    }
    AFD_TRY(write_config(files, directory.path(), plan.formats()));
    return QuantiseResult{.formats = plan.formats(),
                          .bytes_before = files.tensors().total_bytes(),
                          .bytes_after = plan.result_bytes()};
}

}  // namespace afd::tools
