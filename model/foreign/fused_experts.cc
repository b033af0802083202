// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/fused_experts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "model/foreign/foreign_floats.h"

namespace afd::model {
namespace {

using ops::Bf16;

// Where a matrix lies: its outputs are `first_output`, `first_output` + `step`, ... of the fused
// one.
struct FusedPlace {
    std::string stem;  // "P.gate_up_proj"
    uint64_t expert = 0;
    uint64_t first_output = 0;
    uint64_t step = 1;
};

std::optional<FusedPlace> fused_place(std::string_view weight) {
    constexpr std::string_view kExperts = ".experts.";
    const size_t at = weight.rfind(kExperts);
    if (at == std::string_view::npos) return {};
    const std::string layer(weight.substr(0, at + kExperts.size()));
    const std::string_view rest = weight.substr(layer.size());
    FusedPlace place;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), place.expert);
    if (error != std::errc()) return {};
    const std::string_view part = rest.substr(static_cast<size_t>(end - rest.data()));
    if (part == ".down_proj.weight") {
        place.stem = layer + "down_proj";
        return place;
    }
    if (part != ".gate_proj.weight" && part != ".up_proj.weight") return {};
    place.stem = layer + "gate_up_proj";
    place.step = 2;
    place.first_output = part == ".up_proj.weight" ? 1 : 0;
    return place;
}

// As many experts as the tensor has, but more than the one that is asked for.
uint64_t num_fused(const TensorInfo& tensor, const FusedPlace& place) {
    const uint64_t found = tensor.shape.empty() ? 0 : tensor.shape[0];
    return std::max(found, place.expert + 1);
}

// `count` rows of the fused tensor, from those of the expert on.
Result<std::vector<uint8_t>> read_fused_rows(const TensorFiles& tensors,
                                             const TensorInfo& tensor,
                                             uint64_t row_bytes,
                                             uint64_t first,
                                             uint64_t count) {
    std::vector<uint8_t> bytes(count * row_bytes);
    AFD_TRY(
        tensors.read_bytes(tensor, first * row_bytes, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

Result<Mxfp4Rows> packed_rows(const ForeignMatrix& matrix,
                              const FusedPlace& place,
                              uint64_t first,
                              uint64_t count) {
    constexpr std::array kTypes = {StorageType::kU8, StorageType::kF8E8M0};
    const uint64_t outputs = matrix.num_outputs * place.step;
    const uint64_t groups = ceil_div(matrix.depth, kMxfp4Group);
    const std::string name = place.stem + "_blocks";
    const uint64_t experts = num_fused(*matrix.tensors.find(name), place);
    const std::array<uint64_t, 4> shape = {experts, outputs, groups, kMxfp4Group / 2};
    AFD_ASSIGN(const TensorInfo* blocks,
               matrix.tensors.checked(name, shape, std::span(kTypes).first(1)));
    AFD_ASSIGN(const TensorInfo* scales,
               matrix.tensors.checked(place.stem + "_scales", std::span(shape).first(3), kTypes));
    const uint64_t begin = place.expert * outputs + first * place.step;
    const uint64_t rows = count * place.step;
    const uint64_t row_bytes = groups * kMxfp4Group / 2;
    AFD_ASSIGN(const auto bytes, read_fused_rows(matrix.tensors, *blocks, row_bytes, begin, rows));
    AFD_ASSIGN(const auto exponents, read_fused_rows(matrix.tensors, *scales, groups, begin, rows));
    Mxfp4Rows own;
    const auto append = [](std::vector<uint8_t>& to, const auto& from, uint64_t at, uint64_t n) {
        const auto first_byte = from.begin() + static_cast<std::ptrdiff_t>(at);
        to.insert(to.end(), first_byte, first_byte + static_cast<std::ptrdiff_t>(n));
    };
    for (uint64_t row = place.first_output; row < rows; row += place.step) {
        // The file's last group is whole.
        append(own.bytes, bytes, row * row_bytes, ceil_div(matrix.depth, uint64_t{2}));
        append(own.exponents, exponents, row * groups, groups);
    }
    return own;
}

// Columns of [E, K, outputs].
Result<std::vector<Bf16>> turned_rows(const ForeignMatrix& matrix,
                                      const FusedPlace& place,
                                      uint64_t first,
                                      uint64_t count) {
    constexpr std::array kTypes = {StorageType::kBf16};
    const uint64_t outputs = matrix.num_outputs * place.step;
    const uint64_t experts = num_fused(*matrix.tensors.find(place.stem), place);
    const std::array<uint64_t, 3> shape = {experts, matrix.depth, outputs};
    AFD_ASSIGN(const TensorInfo* tensor, matrix.tensors.checked(place.stem, shape, kTypes));
    const uint64_t columns = count * place.step;
    AFD_ASSIGN(const auto turned,
               read_block<Bf16>(matrix.tensors,
                                *tensor,
                                {.first_row = place.expert * matrix.depth,
                                 .num_rows = matrix.depth,
                                 .first_column = first * place.step,
                                 .num_columns = columns}));
    std::vector<Bf16> rows(count * matrix.depth);
    for (uint64_t k = 0; k < matrix.depth; ++k) {
        const Bf16* from = &turned[k * columns + place.first_output];
        for (uint64_t n = 0; n < count; ++n) rows[n * matrix.depth + k] = from[n * place.step];
    }
    return rows;
}

}  // namespace

bool is_fused_expert(const TensorFiles& tensors, std::string_view weight) {
    const auto place = fused_place(weight);
    return place && (tensors.find(place->stem + "_blocks") != nullptr ||
                     tensors.find(place->stem) != nullptr);
}

bool is_fused_mxfp4(const TensorFiles& tensors, std::string_view weight) {
    const auto place = fused_place(weight);
    return place && tensors.find(place->stem + "_blocks") != nullptr;
}

std::vector<std::string> fused_expert_tensors(std::string_view weight) {
    const auto place = fused_place(weight);
    if (!place) return {};
    return {place->stem, place->stem + "_blocks", place->stem + "_scales"};
}

Result<std::vector<Bf16>> fused_expert_rows(const ForeignMatrix& matrix,
                                            uint64_t first,
                                            uint64_t count) {
    const FusedPlace place = *fused_place(matrix.weight);
    if (!is_fused_mxfp4(matrix.tensors, matrix.weight)) {
        return turned_rows(matrix, place, first, count);
    }
    AFD_ASSIGN(const Mxfp4Rows rows, packed_rows(matrix, place, first, count));
    return mxfp4_values(matrix.weight, rows.bytes, rows.exponents, matrix.depth, first);
}

Result<Mxfp4Rows> fused_mxfp4_rows(const ForeignMatrix& matrix, uint64_t first, uint64_t count) {
    return packed_rows(matrix, *fused_place(matrix.weight), first, count);
}

}  // namespace afd::model
