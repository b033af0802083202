// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/local_decoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "model/attention/kv_cache.h"
#include "model/decoder/attention_half.h"
#include "model/decoder/embedding_head.h"
#include "model/decoder/expert_weights.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "ops/fused_moe/static_composition.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

ops::FusedMoeConfig moe_config(const ModelConfig& config, uint32_t chunk_max) {
    ops::FusedMoeConfig moe;
    moe.hidden = config.hidden;
    moe.num_experts = config.num_experts;
    moe.top_k = config.top_k;
    moe.num_shared = config.num_shared_slots();
    moe.max_num_tokens = chunk_max;
    moe.activation = config.activation;
    moe.bias = config.has_expert_bias ? ops::ExpertBias::kPresent : ops::ExpertBias::kAbsent;
    return moe;
}

}  // namespace

struct LocalDecoder::Impl {
    Impl(AttentionHalf attention_in,
         EmbeddingHead ends_in,
         ops::ExpertTable experts_in,
         KvCache cache_in,
         uint32_t chunk_max_in,
         ops::Parallel& parallel_in)
        : parallel(&parallel_in),
          config(attention_in.config()),
          chunk_max(chunk_max_in),
          half(std::move(attention_in)),
          ends(std::move(ends_in)),
          table(std::move(experts_in)),
          cache(std::move(cache_in)),
          workspace(half, chunk_max, parallel_in.num_threads()),
          local(moe_config(config, chunk_max), parallel_in),
          experts(table, experts_per_layer(config)),
          rows(size_t{3} * chunk_max * config.hidden),
          wide(config.residual == ResidualType::kFp32 ? size_t{chunk_max} * config.hidden : 0),
          topk_ids(size_t{chunk_max} * config.top_k),
          topk_weights(size_t{chunk_max} * config.top_k),
          positions(chunk_max),
          cache_index(chunk_max),
          block_tables(chunk_max) {}

    ops::Rows<Bf16> rows_of(size_t which, size_t num_tokens) {
        const size_t offset = which * chunk_max * config.hidden;
        return ops::make_rows(rows.data() + offset, num_tokens, size_t{config.hidden});
    }

    ops::AttentionBatch batch_of(size_t num_tokens);
    Residual residual_of(size_t num_tokens) {
        if (wide.empty()) return rows_of(0, num_tokens);
        return ops::make_rows(wide.data(), num_tokens, size_t{config.hidden});
    }

    Result<> run_layer(uint32_t layer,
                       const ops::AttentionBatch& batch,
                       std::span<const int32_t> tokens);
    void capture(uint32_t layer, size_t num_tokens, int32_t* routing) const;

    ops::Parallel* parallel;
    ModelConfig config;
    uint32_t chunk_max;
    AttentionHalf half;
    EmbeddingHead ends;
    ops::ExpertTable table;
    KvCache cache;
    AttentionWorkspace workspace;
    ops::LocalPrepareFinalize local;
    ops::GroupedExperts experts;
    std::optional<ops::FusedMoe> moe;
    std::vector<Bf16> rows;   // Residual, input of the FFN, its output.
    std::vector<float> wide;  // The residual in fp32, or empty.
    std::vector<int32_t> topk_ids;
    std::vector<float> topk_weights;
    std::vector<int32_t> positions;
    std::vector<int64_t> cache_index;
    std::vector<const int32_t*> block_tables;
    std::vector<int32_t> blocks;  // Of the one sequence: all of the cache.
    uint32_t num_tokens_max = 0;
    uint32_t num_done = 0;
    OnFfnInput observer;
};

ops::AttentionBatch LocalDecoder::Impl::batch_of(size_t num_tokens) {
    for (size_t i = 0; i < num_tokens; ++i) {
        const auto position = static_cast<uint32_t>(num_done + i);
        positions[i] = static_cast<int32_t>(position);
        cache_index[i] = cache_row(blocks, position);
        block_tables[i] = blocks.data();
    }
    return {.num_tokens = num_tokens,
            .positions = positions.data(),
            .cache_index = cache_index.data(),
            .block_tables = block_tables.data()};
}

Result<> LocalDecoder::Impl::run_layer(uint32_t layer,
                                       const ops::AttentionBatch& batch,
                                       std::span<const int32_t> tokens) {
    const Residual residual = residual_of(batch.num_tokens);
    const auto x = rows_of(1, batch.num_tokens);
    const auto out = rows_of(2, batch.num_tokens);
    half.attention(layer, batch, cache, residual, workspace, *parallel);
    half.pre_ffn(layer,
                 residual,
                 {x, {topk_ids.data(), topk_weights.data(), tokens.data()}},
                 workspace,
                 *parallel);
    // A NaN among the scores comes back as NaN weights; what follows would be a text of nonsense.
    for (size_t i = 0; i < batch.num_tokens; ++i) {
        if (!is_poisoned(&topk_weights[i * config.top_k])) continue;
        return internal(
            "the router of layer {} met a NaN at position {}; the model's weights or "
            "activations overflow",
            with(layer, batch.positions[i]));
    }
    if (observer) observer(layer, {x.data, x.num_rows, x.num_cols, x.stride});
    AFD_TRY(moe->apply({.x = x,
                        .layer_id = layer,
                        .num_tokens = static_cast<uint32_t>(batch.num_tokens),
                        .top_k = config.top_k,
                        .num_shared = half.num_shared(layer),
                        .topk_ids = topk_ids.data(),
                        .topk_weights = topk_weights.data()},
                       out));
    add_residual(residual, out, *parallel);
    return {};
}

// What the layer's router chose, before the next layer's does.
void LocalDecoder::Impl::capture(uint32_t layer, size_t num_tokens, int32_t* routing) const {
    const size_t top_k = config.top_k;
    for (size_t t = 0; t < num_tokens; ++t) {
        std::copy_n(&topk_ids[t * top_k], top_k, routing + (t * config.num_layers + layer) * top_k);
    }
}

LocalDecoder::LocalDecoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalDecoder::LocalDecoder(LocalDecoder&&) noexcept = default;
LocalDecoder& LocalDecoder::operator=(LocalDecoder&&) noexcept = default;
LocalDecoder::~LocalDecoder() = default;

Result<LocalDecoder> LocalDecoder::load(const ModelFiles& files,
                                        ops::NumericClass numeric_class,
                                        uint32_t chunk_max,
                                        uint32_t num_tokens_max,
                                        ops::Parallel& parallel) {
    const ModelConfig& config = files.config();
    if (num_tokens_max > config.context_length) {
        return invalid_argument("{} tokens; the context holds {}",
                                with(num_tokens_max, config.context_length));
    }
    AFD_ASSIGN(AttentionHalf half, AttentionHalf::load(files, numeric_class));
    AFD_ASSIGN(EmbeddingHead ends, EmbeddingHead::load(files, numeric_class));
    const std::vector<ExpertSlot> slots = all_expert_slots(config);
    AFD_ASSIGN(
        LoadedExperts experts,
        load_experts(
            files, slots, config.num_layers * experts_per_layer(config), numeric_class, parallel));
    AFD_ASSIGN(KvCache cache, KvCache::create(kv_shape(config), num_tokens_max));
    auto impl = std::make_unique<Impl>(std::move(half),
                                       std::move(ends),
                                       std::move(experts.table),
                                       std::move(cache),
                                       chunk_max,
                                       parallel);
    ops::FusedMoeConfig moe = moe_config(config, chunk_max);
    moe.quantisation = ops::quantisation_of(impl->table);
    // Once the parts are where they stay: the framework keeps pointers to them.
    AFD_ASSIGN(impl->moe, ops::compose(impl->local, impl->experts, moe, parallel));
    impl->num_tokens_max = num_tokens_max;
    BlockAllocator allocator(impl->cache.num_blocks());
    // Cannot fail: the cache was made for as many tokens.
    AFD_ASSERT(allocator.reserve(num_tokens_max, impl->blocks), "%u tokens", num_tokens_max);
    return LocalDecoder(std::move(impl));
}

void LocalDecoder::observe_ffn(OnFfnInput observer) {
    impl_->observer = std::move(observer);
}

void LocalDecoder::reset() {
    impl_->num_done = 0;
}

Result<> LocalDecoder::append(std::span<const int32_t> tokens,
                              ops::Rows<float> logits,
                              int32_t* routing) {
    const ModelConfig& config = impl_->config;
    if (tokens.size() > impl_->chunk_max ||
        tokens.size() > impl_->num_tokens_max - impl_->num_done) {
        return invalid_argument(
            "{} tokens after {}; room for {} in a call and {} in all",
            with(tokens.size(), impl_->num_done, impl_->chunk_max, impl_->num_tokens_max));
    }
    for (const int32_t token : tokens) {
        if (token >= 0 && static_cast<uint32_t>(token) < config.vocab_size) continue;
        return invalid_argument("token {}; allowed: 0 to {}", with(token, config.vocab_size - 1));
    }
    const Residual residual = impl_->residual_of(tokens.size());
    const ops::AttentionBatch batch = impl_->batch_of(tokens.size());
    impl_->ends.embed(tokens, residual);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        AFD_TRY(impl_->run_layer(layer, batch, tokens));
        if (routing != nullptr) impl_->capture(layer, tokens.size(), routing);
    }
    impl_->ends.head(residual, impl_->rows_of(0, tokens.size()), logits, *impl_->parallel);
    impl_->num_done += static_cast<uint32_t>(tokens.size());
    return {};
}

}  // namespace afd::model
