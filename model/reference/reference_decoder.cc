// SPDX-License-Identifier: Apache-2.0
#include "model/reference/reference_decoder.h"

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/checkpoint/router_tensors.h"
#include "model/checkpoint/tensor_names.h"
#include "model/decoder/router.h"
#include "model/reference/reference_attention.h"
#include "ops/reference/expert_ffn.h"
#include "ops/reference/gating_rows.h"
#include "ops/reference/linear.h"
#include "ops/reference/quantise.h"
#include "ops/reference/rms_norm.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ops::reference::Matrix;
using ops::reference::Rounding;

struct Layer {
    NormTensors ffn_norm;
    RouterTensors router;                // Empty in a dense layer.
    std::vector<ExpertTensors> experts;  // By logical expert.
};

ops::Rows<const Bf16> matrix_of(const std::vector<Bf16>& weight, size_t num_outputs) {
    return ops::make_rows(weight.data(), num_outputs, weight.size() / num_outputs);
}

// Smooth scales act on the fp32 values that are then quantised.
Matrix scaled(Matrix x, const std::vector<float>& smooth) {
    for (size_t i = 0; !smooth.empty() && i < x.values.size(); ++i) {
        x.values[i] *= static_cast<double>(smooth[i % smooth.size()]);
    }
    return x;
}

// What is left of rows that were multiplied by `smooth` and quantised to int8, divided by it again.
Matrix through_int8(const Matrix& x, const std::vector<float>& smooth) {
    const Matrix wide = scaled(x, smooth);
    Matrix out(x.num_rows, x.num_cols);
    std::vector<int8_t> q(x.num_cols);
    for (size_t t = 0; t < x.num_rows; ++t) {
        const std::vector<float> row(wide.row(t), wide.row(t) + x.num_cols);
        const float scale = ops::reference::quantise_row(
            ops::DType::kFp32, row.data(), nullptr, x.num_cols, q.data());
        for (size_t i = 0; i < x.num_cols; ++i) {
            const double factor = smooth.empty() ? 1.0 : static_cast<double>(smooth[i]);
            out.at(t, i) = static_cast<double>(q[i]) * static_cast<double>(scale) / factor;
        }
    }
    return out;
}

// y = y · sigmoid(x · gate), rounded; with an empty gate y.
void multiply_gate(const Matrix& x, const std::vector<float>& gate, Rounding rounding, Matrix& y) {
    for (size_t t = 0; !gate.empty() && t < x.num_rows; ++t) {
        double sum = 0;
        for (size_t i = 0; i < gate.size(); ++i) sum += x.at(t, i) * static_cast<double>(gate[i]);
        const double factor = 1.0 / (1.0 + std::exp(-sum));
        for (size_t i = 0; i < y.num_cols; ++i) {
            y.at(t, i) = ops::reference::round_point(y.at(t, i) * factor, rounding);
        }
    }
}

// x · Wᵀ of a gate in parts (router_tensors.h).
Matrix gate_logits(const Matrix& x, const std::vector<Bf16>& gate, size_t num_experts) {
    const Matrix products =
        ops::reference::linear_f32(x, matrix_of(gate, gate.size() / x.num_cols));
    Matrix logits(x.num_rows, num_experts);
    for (size_t t = 0; t < x.num_rows; ++t) {
        for (size_t i = 0; i < products.num_cols; ++i) {
            logits.at(t, i % num_experts) += products.at(t, i);
        }
    }
    return logits;
}

// int4 and mxfp4 become the bf16 values that they stand for, unless the rows are int8.
void dequantise_nibbles(const QuantisationConfig& quantisation, StoredMatrix& matrix) {
    if (!ops::has_nibbles(matrix.format)) return;
    if (quantisation.int4_rows == ops::Int4Rows::kInt8) return;
    const std::vector<float> values = matrix.values();
    StoredMatrix wide{.num_outputs = matrix.num_outputs, .depth = matrix.depth};
    for (const float value : values) wide.bf16.push_back(ops::from_float(value));
    matrix = std::move(wide);
}

Result<Layer> read_layer(const ModelFiles& files, uint32_t index) {
    const ModelConfig& config = files.config();
    Layer layer;
    AFD_ASSIGN(layer.ffn_norm,
               read_norm(files.tensors(), config, layer_tensor(index, config.names.ffn_norm)));
    if (config.is_moe_layer(index)) {
        AFD_ASSIGN(layer.router, read_router_tensors(files.tensors(), config, index));
    }
    const uint32_t num_experts =
        config.is_moe_layer(index) ? config.num_experts + config.num_shared_slots() : 1;
    for (uint32_t expert = 0; expert < num_experts; ++expert) {
        AFD_ASSIGN(auto tensors, read_expert_tensors(files.tensors(), config, index, expert));
        for (StoredMatrix* matrix : {&tensors.gate, &tensors.up, &tensors.down}) {
            dequantise_nibbles(config.quantisation, *matrix);
        }
        layer.experts.push_back(std::move(tensors));
    }
    return layer;
}

}  // namespace

struct ReferenceDecoder::Impl {
    ModelConfig config;
    std::unique_ptr<ReferenceAttention> attention;
    std::vector<Bf16> embedding;
    NormTensors final_norm;
    std::vector<Bf16> head;       // Empty if tied to the embedding.
    std::vector<Bf16> head_bias;  // [vocab_size], or empty.
    std::vector<Layer> layers;

    // `seen`: by the router.
    Matrix ffn(const Layer& layer,
               const Matrix& x,
               const Matrix& seen,
               std::span<const int32_t> tokens,
               Rounding rounding) const;
    ops::reference::GatingOutput route(const Layer& layer,
                                       const Matrix& x,
                                       std::span<const int32_t> tokens) const;
};

ops::reference::GatingOutput ReferenceDecoder::Impl::route(const Layer& layer,
                                                           const Matrix& x,
                                                           std::span<const int32_t> tokens) const {
    Matrix logits = gate_logits(x, layer.router.gate, config.num_experts);
    for (size_t i = 0; !layer.router.logit_bias.empty() && i < logits.values.size(); ++i) {
        logits.values[i] += static_cast<double>(layer.router.logit_bias[i % config.num_experts]);
    }
    const auto attributes = gating_attributes(config);
    if (layer.router.token_experts.empty()) {
        return ops::reference::gating_rows(attributes, logits, layer.router.bias);
    }
    std::vector<int32_t> ids;
    for (const int32_t token : tokens) {
        const auto row = layer.router.token_experts.begin() + int64_t{token} * config.top_k;
        ids.insert(ids.end(), row, row + config.top_k);
    }
    return ops::reference::gating_weights(attributes, logits, ids);
}

Matrix ReferenceDecoder::Impl::ffn(const Layer& layer,
                                   const Matrix& x,
                                   const Matrix& seen,
                                   std::span<const int32_t> tokens,
                                   Rounding rounding) const {
    // Every expert over every row: wasteful and plain. Row t of outputs[e] is used if t chose e.
    std::vector<Matrix> outputs;
    for (const ExpertTensors& expert : layer.experts) {
        outputs.push_back(ops::reference::expert_ffn(scaled(x, expert.smooth),
                                                     {.gate = linear_weight(expert.gate),
                                                      .up = linear_weight(expert.up),
                                                      .down = linear_weight(expert.down),
                                                      .activation = config.activation,
                                                      .gate_bias = expert.bias.gate,
                                                      .up_bias = expert.bias.up,
                                                      .down_bias = expert.bias.down},
                                                     rounding));
        // Where int4 is left the rows are int8 (dequantise_nibbles()).
        const bool has_int8_rows =
            expert.gate.format == ops::WeightFormat::kInt8 || ops::is_int4(expert.gate.format);
        multiply_gate(
            rounding == Rounding::kBf16 && has_int8_rows ? through_int8(x, expert.smooth) : x,
            expert.output_gate,
            rounding,
            outputs.back());
    }
    const bool is_moe = !layer.router.gate.empty();
    ops::reference::GatingOutput choice;
    if (is_moe) choice = route(layer, seen, tokens);
    Matrix out(x.num_rows, config.hidden);
    for (size_t token = 0; token < x.num_rows; ++token) {
        std::vector<const double*> rows;
        std::vector<double> weights;
        for (size_t k = 0; is_moe && k < config.top_k; ++k) {
            const auto expert = static_cast<size_t>(choice.ids[token * config.top_k + k]);
            rows.push_back(outputs[expert].row(token));
            weights.push_back(choice.weights.at(token, k));
        }
        if (!is_moe || config.num_shared_slots() > 0) {
            rows.push_back(outputs.back().row(token));
            weights.push_back(1.0);
        }
        ops::reference::combine(
            rows, weights, rounding, std::span(&out.at(token, 0), config.hidden));
    }
    return out;
}

ReferenceDecoder::ReferenceDecoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ReferenceDecoder::ReferenceDecoder(ReferenceDecoder&&) noexcept = default;
ReferenceDecoder& ReferenceDecoder::operator=(ReferenceDecoder&&) noexcept = default;
ReferenceDecoder::~ReferenceDecoder() = default;

Result<ReferenceDecoder> ReferenceDecoder::load(const ModelFiles& files) {
    auto impl = std::make_unique<Impl>();
    impl->config = files.config();
    AFD_ASSIGN(impl->attention, load_reference_attention(impl->config, files.tensors()));
    const std::array<uint64_t, 2> shape = {impl->config.vocab_size, impl->config.hidden};
    AFD_ASSIGN(impl->embedding, files.tensors().read_bf16(kEmbeddingTensor, shape));
    AFD_ASSIGN(impl->final_norm, read_norm(files.tensors(), impl->config, kFinalNorm));
    if (!impl->config.tie_word_embeddings) {
        AFD_ASSIGN(impl->head, files.tensors().read_bf16(kHeadTensor, shape));
    }
    if (impl->config.has_head_bias) {
        AFD_ASSIGN(impl->head_bias,
                   files.tensors().read_bf16(kHeadBiasTensor, std::span(shape).first(1)));
    }
    for (uint32_t index = 0; index < impl->config.num_layers; ++index) {
        AFD_ASSIGN(auto layer, read_layer(files, index));
        impl->layers.push_back(std::move(layer));
    }
    return ReferenceDecoder(std::move(impl));
}

Result<std::vector<float>> ReferenceDecoder::logits(std::span<const int32_t> tokens,
                                                    Rounding rounding) const {
    const ModelConfig& config = impl_->config;
    if (tokens.size() > config.context_length) {
        return invalid_argument("{} tokens; the context holds {}",
                                with(tokens.size(), config.context_length));
    }
    Matrix residual(tokens.size(), config.hidden);
    for (size_t t = 0; t < tokens.size(); ++t) {
        if (tokens[t] < 0 || static_cast<uint32_t>(tokens[t]) >= config.vocab_size) {
            return invalid_argument("token {} at position {}; allowed: 0 to {}",
                                    with(tokens[t], t, config.vocab_size - 1));
        }
        const Bf16* row = &impl_->embedding[static_cast<size_t>(tokens[t]) * config.hidden];
        for (size_t i = 0; i < config.hidden; ++i) {
            residual.at(t, i) = static_cast<double>(ops::to_float(row[i]));
        }
    }
    const bool is_wide = config.residual == ResidualType::kFp32;
    const Rounding of_sum = is_wide ? Rounding::kNone : rounding;
    for (uint32_t index = 0; index < config.num_layers; ++index) {
        const Layer& layer = impl_->layers[index];
        const Matrix attended = impl_->attention->attention(index, residual, rounding);
        residual = ops::reference::add(residual, attended, of_sum);
        const Matrix x = residual_norm(config, residual, layer.ffn_norm, rounding);
        const Matrix seen =
            is_wide ? residual_norm(config, residual, layer.ffn_norm, Rounding::kNone) : x;
        residual =
            ops::reference::add(residual, impl_->ffn(layer, x, seen, tokens, rounding), of_sum);
    }
    const Matrix last = residual_norm(config, residual, impl_->final_norm, rounding);
    const std::vector<Bf16>& head = impl_->head.empty() ? impl_->embedding : impl_->head;
    const Matrix logits = ops::reference::linear_f32(last, matrix_of(head, config.vocab_size));
    std::vector<float> out(logits.values.size());
    for (size_t i = 0; i < out.size(); ++i) {
        const Bf16* bias =
            impl_->head_bias.empty() ? nullptr : &impl_->head_bias[i % config.vocab_size];
        out[i] = static_cast<float>(
            logits.values[i] + (bias == nullptr ? 0.0 : static_cast<double>(ops::to_float(*bias))));
    }
    return out;
}

}  // namespace afd::model
