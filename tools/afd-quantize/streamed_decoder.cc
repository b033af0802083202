// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/streamed_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "model/attention/attention_config.h"
#include "model/attention/kv_cache.h"
#include "model/attention/residual_steps.h"
#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/checkpoint/tensor_names.h"
#include "model/decoder/expert_weights.h"
#include "model/decoder/serving_memory.h"
#include "ops/experts/combine.h"
#include "ops/format/packed_shape.h"
#include "ops/linear/linear.h"
#include "ops/tensor/workspace.h"
#include "proto/failure.h"
#include "tools/afd-quantize/residual_rows.h"

namespace afd::tools {
namespace {

using ops::Bf16;

// Rows of attention and of the head at a time.
constexpr size_t kChunk = 128;

// Rows of experts, sorted by expert, and where their results belong.
struct ExpertRows {
    std::vector<ops::ExpertGroup> groups;
    std::vector<Bf16> x;
    std::vector<Bf16> y;
    std::vector<uint64_t> places;  // Rows of the results' file.

    size_t num_rows() const { return places.size(); }
};

// log of the sum of exp over a row that comes in parts.
struct LogSum {
    double largest = -std::numeric_limits<double>::infinity();
    double sum = 0;

    void add(std::span<const float> logits) {
        const double part = *std::ranges::max_element(logits);
        if (part > largest) {
            sum *= std::exp(largest - part);
            largest = part;
        }
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    }
    double value() const { return std::log(sum) + largest; }
};

}  // namespace

StreamedDecoder::StreamedDecoder(const model::ModelFiles& files,
                                 const StreamedText& text,
                                 ops::Parallel& parallel,
                                 const StreamedLimits& limits,
                                 RowFile residual,
                                 RowFile input,
                                 RowFile results)
    : files_(&files),
      config_(files.config()),
      text_(&text),
      parallel_(&parallel),
      limits_(limits),
      numeric_class_(ops::best_numeric_class()),
      residual_(std::move(residual)),
      input_(std::move(input)),
      results_(std::move(results)),
      topk_ids_(text.tokens.size() * config_.top_k),
      topk_weights_(text.tokens.size() * config_.top_k) {}

Result<StreamedDecoder> StreamedDecoder::create(const model::ModelFiles& files,
                                                const StreamedText& text,
                                                const std::string& scratch,
                                                ops::Parallel& parallel,
                                                const StreamedLimits& limits) {
    AFD_ASSERT(text.window > 0 && text.window <= files.config().context_length,
               "window of %zu tokens",
               text.window);
    const size_t hidden = files.config().hidden;
    AFD_ASSIGN(RowFile residual,
               RowFile::create(scratch, ResidualRows::row_bytes(files.config().residual, hidden)));
    AFD_ASSIGN(RowFile input, RowFile::create(scratch, hidden * sizeof(Bf16)));
    AFD_ASSIGN(RowFile results, RowFile::create(scratch, hidden * sizeof(Bf16)));
    return StreamedDecoder(
        files, text, parallel, limits, std::move(residual), std::move(input), std::move(results));
}

Result<std::vector<double>> StreamedDecoder::surprises(const std::function<void(double)>& progress,
                                                       ChannelRanges* ranges) {
    if (ranges != nullptr) {
        ranges->assign(config_.num_layers, std::vector<float>(config_.hidden));
    }
    AFD_TRY(embed());
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
        AFD_TRY(attention(layer, ranges == nullptr ? nullptr : &(*ranges)[layer]));
        AFD_TRY(experts(layer));
        AFD_TRY(combine(layer));
        progress((layer + 1.0) / (config_.num_layers + 1.0));
    }
    std::vector<double> surprises(text_->tokens.size(), 0.0);
    AFD_TRY(head(surprises));
    progress(1);
    return surprises;
}

Result<> StreamedDecoder::embed() {
    const std::array<uint64_t, 2> shape = {config_.vocab_size, config_.hidden};
    ResidualRows residual(config_.residual, 1, config_.hidden);
    for (size_t i = 0; i < text_->tokens.size(); ++i) {
        const auto token = static_cast<uint64_t>(text_->tokens[i]);
        AFD_ASSIGN(const auto row,
                   files_->tensors().read_bf16_rows(model::kEmbeddingTensor, shape, token, 1));
        residual.set(row);
        AFD_TRY(residual_.write(i, residual.bytes(1)));
    }
    return {};
}

Result<> StreamedDecoder::attention(uint32_t layer, std::vector<float>* ranges) {
    AFD_ASSIGN(
        const model::AttentionHalf half,
        model::AttentionHalf::load(*files_, numeric_class_, model::LayerRange{layer, layer + 1}));
    model::KvShape shape = model::kv_shape(config_);
    shape.num_layers = 1;
    AFD_ASSIGN(const model::KvCache cache, model::KvCache::create(shape, text_->window));
    model::AttentionWorkspace workspace(half, kChunk, parallel_->num_threads());
    for (size_t first = 0; first < text_->tokens.size(); first += text_->window) {
        AFD_TRY(attention_window(layer, half, cache, first, workspace));
        if (on_cache_) on_cache_(layer, cache.layer(0), text_->window_tokens(first));
        if (ranges == nullptr) continue;
        std::vector<Bf16> x(text_->window_tokens(first) * config_.hidden);
        AFD_TRY(input_.read(first, x));
        widen_columns(x, *ranges);
    }
    num_slots_ = config_.top_k + half.num_shared(layer);
    return {};
}

Result<> StreamedDecoder::attention_window(uint32_t layer,
                                           const model::AttentionHalf& half,
                                           const model::KvCache& cache,
                                           size_t first,
                                           model::AttentionWorkspace& workspace) {
    std::vector<int32_t> blocks(cache.num_blocks());
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
    const size_t num_tokens = text_->window_tokens(first);
    const size_t chunk = std::min(kChunk, num_tokens);
    ResidualRows residual(config_.residual, chunk, config_.hidden);
    std::vector<Bf16> x(chunk * config_.hidden);
    for (size_t done = 0; done < num_tokens; done += kChunk) {
        const size_t count = std::min(kChunk, num_tokens - done);
        std::vector<int32_t> positions(count);
        std::vector<int64_t> cache_index(count);
        const std::vector<const int32_t*> tables(count, blocks.data());
        for (size_t i = 0; i < count; ++i) {
            positions[i] = static_cast<int32_t>(done + i);
            cache_index[i] = model::cache_row(blocks, static_cast<uint32_t>(done + i));
        }
        const size_t at = first + done;
        const model::Residual rows = residual.rows(count);
        const auto x_rows = ops::make_rows(x.data(), count, size_t{config_.hidden});
        AFD_TRY(residual_.read(at, residual.bytes(count)));
        half.attention(layer,
                       {.num_tokens = count,
                        .positions = positions.data(),
                        .cache_index = cache_index.data(),
                        .block_tables = tables.data()},
                       cache,
                       rows,
                       workspace,
                       *parallel_);
        float* weights = &topk_weights_[at * config_.top_k];
        half.pre_ffn(layer,
                     rows,
                     {x_rows, {&topk_ids_[at * config_.top_k], weights, &text_->tokens[at]}},
                     workspace,
                     *parallel_);
        for (size_t i = 0; i < count; ++i) {
            if (!model::is_poisoned(weights + i * config_.top_k)) continue;
            return internal(
                "the router of layer {} met a NaN in window {} of the text, at position {}; the "
                "model's weights or activations overflow",
                with(layer, first / text_->window, done + i));
        }
        AFD_TRY(residual_.write(at, residual.bytes(count)));
        AFD_TRY(input_.write(at, std::span(x).first(count * config_.hidden)));
    }
    return {};
}

int32_t StreamedDecoder::expert_at(size_t token, size_t slot) const {
    return slot < config_.top_k ? topk_ids_[token * config_.top_k + slot]
                                : static_cast<int32_t>(config_.num_experts);
}

size_t StreamedDecoder::tokens_at_once() const {
    return std::max<size_t>(1, limits_.row_bytes / (num_slots_ * config_.hidden * sizeof(Bf16)));
}

Result<> StreamedDecoder::experts(uint32_t layer) {
    const uint32_t num_experts = model::num_layer_experts(config_, layer);
    for (uint32_t first = 0; first < num_experts;) {
        uint32_t last = first;
        uint64_t bytes = 0;
        while (last < num_experts) {
            bytes += model::packed_expert_bytes(config_, layer, last, numeric_class_);
            if (last > first && bytes > limits_.expert_bytes) break;
            ++last;
        }
        AFD_TRY(expert_group(layer, first, last));
        first = last;
    }
    return {};
}

Result<> StreamedDecoder::expert_group(uint32_t layer, uint32_t first, uint32_t last) {
    std::vector<model::ExpertSlot> wanted;
    for (uint32_t e = first; e < last; ++e) wanted.push_back({layer, e, size_t{e} - first});
    AFD_ASSIGN(const model::LoadedExperts loaded,
               model::load_experts(*files_, wanted, wanted.size(), numeric_class_, *parallel_));
    const size_t hidden = config_.hidden;
    const size_t step = tokens_at_once();
    std::vector<Bf16> input;
    ops::Workspace workspace(
        ops::grouped_ffn_workspace_bytes(loaded.table, step * num_slots_, wanted.size()));
    for (size_t begin = 0; begin < text_->tokens.size(); begin += step) {
        const size_t end = std::min(begin + step, text_->tokens.size());
        input.resize((end - begin) * hidden);
        AFD_TRY(input_.read(begin, input));
        ExpertRows rows;
        for (uint32_t e = first; e < last; ++e) {
            const size_t before = rows.num_rows();
            for (size_t t = begin; t < end; ++t) {
                for (size_t slot = 0; slot < num_slots_; ++slot) {
                    if (expert_at(t, slot) != static_cast<int32_t>(e)) continue;
                    const auto row = std::span(input).subspan((t - begin) * hidden, hidden);
                    rows.x.insert(rows.x.end(), row.begin(), row.end());
                    rows.places.push_back(t * num_slots_ + slot);
                }
            }
            if (rows.num_rows() == before) continue;
            rows.groups.push_back(
                {static_cast<int64_t>(e - first), static_cast<int64_t>(rows.num_rows() - before)});
        }
        if (rows.num_rows() == 0) continue;
        rows.y.resize(rows.x.size());
        AFD_TRY(ops::grouped_ffn(
            {.experts = &loaded.table,
             .groups = rows.groups,
             .x = ops::make_rows<const Bf16>(rows.x.data(), rows.num_rows(), hidden),
             .y = ops::make_rows(rows.y.data(), rows.num_rows(), hidden)},
            workspace.bytes(),
            *parallel_));
        for (size_t i = 0; i < rows.num_rows(); ++i) {
            AFD_TRY(results_.write(rows.places[i], std::span(rows.y).subspan(i * hidden, hidden)));
        }
    }
    return {};
}

Result<> StreamedDecoder::combine(uint32_t layer) {
    const size_t hidden = config_.hidden;
    const size_t step = tokens_at_once();
    const bool is_moe = config_.is_moe_layer(layer);
    std::vector<Bf16> results(std::min(step, text_->tokens.size()) * num_slots_ * hidden);
    ResidualRows residual(config_.residual, std::min(step, text_->tokens.size()), hidden);
    std::vector<Bf16> sums(std::min(step, text_->tokens.size()) * hidden);
    for (size_t first = 0; first < text_->tokens.size(); first += step) {
        const size_t count = std::min(step, text_->tokens.size() - first);
        for (size_t i = 0; i < count * num_slots_; ++i) {
            // The rows of masked slots were never written, or by an earlier layer.
            if (expert_at(first + i / num_slots_, i % num_slots_) < 0) continue;
            AFD_TRY(results_.read(first * num_slots_ + i,
                                  std::span(results).subspan(i * hidden, hidden)));
        }
        AFD_TRY(residual_.read(first, residual.bytes(count)));
        const auto out = ops::make_rows(sums.data(), count, hidden);
        ops::combine({.num_tokens = count,
                      .top_k = config_.top_k,
                      .num_shared = num_slots_ - config_.top_k,
                      .topk_ids = &topk_ids_[first * config_.top_k],
                      .num_experts = is_moe ? int64_t{config_.num_experts} : 1,
                      .topk_weights = &topk_weights_[first * config_.top_k],
                      .rows = reinterpret_cast<const std::byte*>(results.data()),
                      .token_stride_bytes = num_slots_ * hidden * sizeof(Bf16),
                      .slot_stride_bytes = hidden * sizeof(Bf16),
                      .out = out},
                     *parallel_);
        model::add_residual(residual.rows(count), out, *parallel_);
        AFD_TRY(residual_.write(first, residual.bytes(count)));
    }
    return {};
}

Result<> StreamedDecoder::head(std::vector<double>& surprises) {
    const size_t hidden = config_.hidden;
    const size_t num_tokens = text_->tokens.size();
    const std::array<uint64_t, 2> shape = {config_.vocab_size, hidden};
    AFD_ASSIGN(const model::NormTensors norm,
               model::read_norm(files_->tensors(), config_, model::kFinalNorm));
    std::vector<Bf16> bias;
    if (config_.has_head_bias) {
        AFD_ASSIGN(bias,
                   files_->tensors().read_bf16(model::kHeadBiasTensor, std::span(shape).first(1)));
    }
    const char* name = config_.tie_word_embeddings ? model::kEmbeddingTensor : model::kHeadTensor;
    const uint64_t step =
        std::max<uint64_t>(ops::kPanelColumns, limits_.head_bytes / (hidden * sizeof(Bf16)));
    std::vector<LogSum> sums(num_tokens);
    std::vector<double> wanted(num_tokens, 0.0);  // The logit of the token behind each.
    ResidualRows residual(config_.residual, std::min(kChunk, num_tokens), hidden);
    std::vector<Bf16> rows(std::min(kChunk, num_tokens) * hidden);
    for (uint64_t first = 0; first < config_.vocab_size; first += step) {
        const uint64_t count = std::min(step, config_.vocab_size - first);
        AFD_ASSIGN(const auto part, files_->tensors().read_bf16_rows(name, shape, first, count));
        const auto packed = ops::PackedLinear::pack(
            ops::make_rows<const Bf16>(part.data(), count, hidden), numeric_class_);
        std::vector<float> logits(std::min(kChunk, num_tokens) * count);
        for (size_t begin = 0; begin < num_tokens; begin += kChunk) {
            const size_t num_rows = std::min(kChunk, num_tokens - begin);
            const auto x = ops::make_rows(rows.data(), num_rows, hidden);
            AFD_TRY(residual_.read(begin, residual.bytes(num_rows)));
            const auto out = ops::make_rows(logits.data(), num_rows, size_t{count});
            model::normalise(residual.rows(num_rows), norm, config_.rms_norm_eps, x, *parallel_);
            ops::linear_f32(x, packed, out, *parallel_);
            if (!bias.empty()) {
                ops::add_bias(std::span(bias).subspan(first, count), out, *parallel_);
            }
            parallel_->run(num_rows, [&](size_t i, unsigned) {
                const auto row = std::span(logits).subspan(i * count, count);
                sums[begin + i].add(row);
                if (begin + i + 1 == num_tokens) return;
                const auto next = static_cast<uint64_t>(text_->tokens[begin + i + 1]);
                if (next >= first && next < first + count) wanted[begin + i] = row[next - first];
            });
        }
    }
    for (size_t i = 1; i < num_tokens; ++i) {
        if (i % text_->window == 0) continue;
        surprises[i] = sums[i - 1].value() - wanted[i - 1];
        if (std::isfinite(surprises[i])) continue;
        return internal(
            "the logits in window {} of the text, at position {}, are not finite; the model's "
            "weights or activations overflow",
            with(i / text_->window, (i - 1) % text_->window));
    }
    return {};
}

}  // namespace afd::tools
