// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/gqa_prolog.h"

#include <algorithm>

#include "ops/attention/batch_check.h"
#include "ops/attention/kv_tiles.h"
#include "ops/attention/rms_norm.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

struct GqaScratch {
    GqaScratch(const GqaShape& s, size_t num_tokens, std::span<std::byte> workspace) {
        WorkspaceCursor cursor(workspace);
        key = make_rows(cursor.take<Bf16>(num_tokens * s.kv_columns()), num_tokens, s.kv_columns());
        value =
            make_rows(cursor.take<Bf16>(num_tokens * s.kv_columns()), num_tokens, s.kv_columns());
        sums = cursor.take<float>(num_tokens * s.query_columns());
        const size_t bytes = quantised_input_bytes(num_tokens, s.hidden);
        int8_x = std::span(cursor.take<std::byte>(bytes), bytes);
    }

    Rows<Bf16> key;               // [T, kv_columns]
    Rows<Bf16> value;             // [T, kv_columns]
    float* sums;                  // [T, query_columns]: of a projection with a bias.
    std::span<std::byte> int8_x;  // Of quantised_input(), for int8 weights.
};

Result<> check_bias_size(const char* part, const std::vector<Bf16>& bias, size_t wanted) {
    if (bias.empty() || bias.size() == wanted) return {};
    return invalid_argument("{} has {} elements; the shape asks for {} or none",
                            with(part, bias.size(), wanted));
}

Result<> check_gamma_size(const char* part,
                          const std::vector<Bf16>& gamma,
                          size_t head_dim,
                          size_t columns) {
    if (gamma.empty() || gamma.size() == head_dim || gamma.size() == columns) return {};
    return invalid_argument("{} has {} elements; the shape asks for {}, {} or none",
                            with(part, gamma.size(), head_dim, columns));
}

void assert_gqa_prolog(const GqaPrologRequest& request) {
    const GqaShape& s = request.weights->shape;
    const size_t num_tokens = request.batch.num_tokens;
    AFD_ASSERT(request.x.num_rows == num_tokens && request.x.num_cols == s.hidden,
               "x [%zu, %zu] for %zu tokens",
               request.x.num_rows,
               request.x.num_cols,
               num_tokens);
    AFD_ASSERT(request.query.num_rows == num_tokens && request.query.num_cols == s.query_columns(),
               "query [%zu, %zu]",
               request.query.num_rows,
               request.query.num_cols);
    AFD_ASSERT(request.rope->dim() <= s.head_dim, "rope of %zu", request.rope->dim());
    AFD_ASSERT(request.cache.key_order == KeyOrder::kRows || s.head_dim % 2 == 0,
               "pairs of %zu elements",
               s.head_dim);
}

bool has_int8_weights(const GqaWeights& w) {
    const auto is_int8 = [](const PackedLinear& weight) {
        return weight.format() == WeightFormat::kInt8;
    };
    return is_int8(w.q_proj) || is_int8(w.k_proj) || is_int8(w.v_proj);
}

void project(const LinearInput& x,
             const PackedLinear& weight,
             const std::vector<Bf16>& bias,
             float* memory,
             Rows<Bf16> y,
             Parallel& parallel) {
    if (bias.empty()) return linear(x, weight, y, parallel);
    linear_biased(x, weight, bias, make_rows(memory, y.num_rows, y.num_cols), y, parallel);
}

// A row of heads: normalised, clamped and, where `rope` is given, rotated.
void finish_row(const GqaWeights& w,
                const std::vector<Bf16>& gamma,
                const RopeTable* rope,
                size_t position,
                std::span<Bf16> row) {
    const size_t dim = w.shape.head_dim;
    if (!gamma.empty()) {
        const Rows<Bf16> parts = make_rows(row.data(), row.size() / gamma.size(), gamma.size());
        rms_norm(parts, gamma.data(), w.norm_epsilon, parts);
    }
    if (w.clip) {
        for (Bf16& x : row) x = from_float(std::clamp(to_float(x), -*w.clip, *w.clip));
    }
    if (rope == nullptr) return;
    for (size_t first = 0; first < row.size(); first += dim) {
        rope_half(row.data() + first, *rope, position, row.data() + first);
    }
}

void finish_rows(const GqaPrologRequest& request, const GqaScratch& scratch, Parallel& parallel) {
    const GqaWeights& w = *request.weights;
    // A rotation or a norm costs a few times what copying its element does.
    const size_t row_elements = 4 * (w.shape.query_columns() + w.shape.kv_columns());
    const size_t num_tokens = request.batch.num_tokens;
    for_rows(parallel, num_tokens, row_elements, [&](size_t first, size_t last, unsigned) {
        for (size_t t = first; t < last; ++t) {
            const auto position = static_cast<size_t>(request.batch.positions[t]);
            const auto row_of = [t](Rows<Bf16> rows) {
                return std::span(rows.row(t), rows.num_cols);
            };
            finish_row(w, w.q_gamma, request.rope, position, row_of(request.query));
            finish_row(w, w.k_gamma, request.rope, position, row_of(scratch.key));
            if (w.clip) finish_row(w, {}, nullptr, position, row_of(scratch.value));
        }
    });
}

void write_key(
    const GqaCache& cache, const GqaShape& s, size_t slot, size_t head, const Bf16* key) {
    Bf16* to = cache.keys + gqa_key_place(s, cache.key_order, gqa_row_index(s, slot, head), 0);
    if (cache.key_order == KeyOrder::kRows) {
        std::copy_n(key, s.head_dim, to);
        return;
    }
    for (size_t i = 0; i < s.head_dim; i += 2) std::copy_n(key + i, 2, to + i * kAttentionBlock);
}

// The key and the value of one head of one token.
void write_head(const GqaCache& cache,
                const GqaShape& s,
                size_t slot,
                size_t head,
                const Bf16* key,
                const Bf16* value) {
    const size_t index = gqa_row_index(s, slot, head);
    if (cache.dtype == KvDtype::kBf16) {
        write_key(cache, s, slot, head, key);
        std::copy_n(value, s.head_dim, cache.values + index * s.head_dim);
        return;
    }
    const size_t to = index * kv_tile_row_bytes(s.head_dim);
    if (cache.key_order == KeyOrder::kPairs) {
        encode_key_pairs(cache.dtype, key, s.head_dim, index, cache.key_rows);
    } else {
        encode_kv_row(cache.dtype, key, s.head_dim, cache.key_rows + to);
    }
    encode_kv_row(cache.dtype, value, s.head_dim, cache.value_rows + to);
}

// A head a task, each in token order, so that of equal indices the last token wins.
void write_cache_heads(const GqaPrologRequest& request,
                       const GqaScratch& scratch,
                       Parallel& parallel) {
    const GqaShape& s = request.weights->shape;
    const size_t num_tokens = request.batch.num_tokens;
    for_rows(parallel,
             s.num_kv_heads,
             2 * num_tokens * s.head_dim * sizeof(Bf16) / kCopiedBytesPerElement,
             [&](size_t first, size_t last, unsigned) {
                 for (size_t head = first; head < last; ++head) {
                     for (size_t t = 0; t < num_tokens; ++t) {
                         const int64_t slot = request.batch.cache_index[t];
                         if (slot < 0) continue;
                         const size_t from = head * s.head_dim;
                         write_head(request.cache,
                                    s,
                                    static_cast<size_t>(slot),
                                    head,
                                    scratch.key.row(t) + from,
                                    scratch.value.row(t) + from);
                     }
                 }
             });
}

}  // namespace

Result<> validate(const GqaWeights& weights) {
    const GqaShape& s = weights.shape;
    if (s.num_kv_heads == 0 || s.num_heads == 0 || s.num_heads % s.num_kv_heads != 0) {
        return invalid_argument("num_kv_heads is {}; it must divide num_heads, which is {}",
                                with(s.num_kv_heads, s.num_heads));
    }
    AFD_TRY(check_matrix("q_proj", weights.q_proj, s.query_columns(), s.hidden));
    AFD_TRY(check_matrix("k_proj", weights.k_proj, s.kv_columns(), s.hidden));
    AFD_TRY(check_matrix("v_proj", weights.v_proj, s.kv_columns(), s.hidden));
    AFD_TRY(check_bias_size("q_bias", weights.q_bias, s.query_columns()));
    AFD_TRY(check_bias_size("k_bias", weights.k_bias, s.kv_columns()));
    AFD_TRY(check_bias_size("v_bias", weights.v_bias, s.kv_columns()));
    AFD_TRY(check_gamma_size("q_gamma", weights.q_gamma, s.head_dim, s.query_columns()));
    AFD_TRY(check_gamma_size("k_gamma", weights.k_gamma, s.head_dim, s.kv_columns()));
    if (weights.clip && !(*weights.clip > 0)) {
        return invalid_argument("clip is {:f}; it must be positive", with(*weights.clip));
    }
    return {};
}

size_t gqa_prolog_workspace_bytes(const GqaShape& s, size_t num_tokens_max) {
    return 2 * workspace_bytes_of<Bf16>(num_tokens_max * s.kv_columns()) +
           workspace_bytes_of<float>(num_tokens_max * s.query_columns()) +
           workspace_round_up(quantised_input_bytes(num_tokens_max, s.hidden));
}

Result<> gqa_prolog(const GqaPrologRequest& request,
                    std::span<std::byte> workspace,
                    Parallel& parallel) {
    AFD_TRY(check_cache_slots(request.batch, request.cache.num_slots));
    AFD_TRY(check_rope_positions(request.batch, *request.rope));
    assert_gqa_prolog(request);
    const GqaWeights& w = *request.weights;
    const GqaScratch scratch(w.shape, request.batch.num_tokens, workspace);
    const LinearInput x = has_int8_weights(w) ? quantised_input(request.x, scratch.int8_x, parallel)
                                              : LinearInput(request.x);
    project(x, w.q_proj, w.q_bias, scratch.sums, request.query, parallel);
    if (w.k_bias.empty() && w.v_bias.empty()) {
        linear_pair(x, {&w.k_proj, scratch.key}, {&w.v_proj, scratch.value}, parallel);
    } else {
        project(x, w.k_proj, w.k_bias, scratch.sums, scratch.key, parallel);
        project(x, w.v_proj, w.v_bias, scratch.sums, scratch.value, parallel);
    }
    finish_rows(request, scratch, parallel);
    write_cache_heads(request, scratch, parallel);
    return {};
}

}  // namespace afd::ops
