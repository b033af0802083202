// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/mla_prolog.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/attention/batch_check.h"
#include "ops/attention/latent_rows.h"
#include "ops/attention/rms_norm.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

struct Scratch {
    Rows<Bf16> cq;                // [T, Hcq]
    Rows<Bf16> n;                 // [T, Hcq]
    Rows<Bf16> qq;                // [T, N·(D + Dr)]
    Rows<Bf16> kv;                // [T, Hckv + Dr]
    float* ckv32 = nullptr;       // [Hckv], a row on its way to a quantised cache
    Bf16* ckv16 = nullptr;        // [Hckv]
    Bf16* kr16 = nullptr;         // [Dr]
    float* kr32 = nullptr;        // [Dr]
    std::span<std::byte> int8_x;  // Of quantised_input(), for int8 weights: [T, He]
    std::span<std::byte> int8_n;  // [T, Hcq]
};

Scratch take_scratch(const MlaShape& s, size_t num_tokens, std::span<std::byte> workspace) {
    WorkspaceCursor cursor(workspace);
    const auto take = [&](size_t cols) {
        return make_rows(cursor.take<Bf16>(num_tokens * cols), num_tokens, cols);
    };
    Scratch scratch;
    scratch.cq = take(s.q_lora_rank);
    scratch.n = take(s.q_lora_rank);
    scratch.qq = take(s.query_columns());
    scratch.kv = take(s.kv_columns());
    scratch.ckv32 = cursor.take<float>(s.kv_lora_rank);
    scratch.ckv16 = cursor.take<Bf16>(s.kv_lora_rank);
    scratch.kr16 = cursor.take<Bf16>(s.qk_rope_head_dim);
    scratch.kr32 = cursor.take<float>(s.qk_rope_head_dim);
    const auto take_int8 = [&](size_t cols) {
        const size_t bytes = quantised_input_bytes(num_tokens, cols);
        return std::span(cursor.take<std::byte>(bytes), bytes);
    };
    scratch.int8_x = take_int8(s.hidden);
    scratch.int8_n = take_int8(s.q_lora_rank);
    return scratch;
}

Result<> check_request(const MlaPrologRequest& request) {
    AFD_TRY(check_cache_slots(request.batch, request.cache.num_slots));
    AFD_TRY(check_rope_positions(request.batch, *request.rope));
    if (request.query_norm.data != nullptr && request.weights->shape.q_lora_rank == 0) {
        return invalid_argument(
            "query_norm is asked for, but q_lora_rank is 0: there is no low-rank query");
    }
    return {};
}

void assert_shapes(const MlaPrologRequest& request) {
    const MlaShape& s = request.weights->shape;
    const size_t num_tokens = request.batch.num_tokens;
    AFD_ASSERT(request.token_x.num_rows == num_tokens && request.token_x.num_cols == s.hidden,
               "token_x [%zu, %zu] for %zu tokens",
               request.token_x.num_rows,
               request.token_x.num_cols,
               num_tokens);
    AFD_ASSERT(request.query.num_rows == num_tokens && request.query.num_cols == s.latent_columns(),
               "query [%zu, %zu]",
               request.query.num_rows,
               request.query.num_cols);
    AFD_ASSERT(request.query_rope.num_rows == num_tokens &&
                   request.query_rope.num_cols == s.rope_columns(),
               "query_rope [%zu, %zu]",
               request.query_rope.num_rows,
               request.query_rope.num_cols);
    AFD_ASSERT(request.rope->dim() == s.qk_rope_head_dim, "rope of %zu", request.rope->dim());
}

bool is_int8(const PackedLinear& weight) {
    return !weight.empty() && weight.format() == WeightFormat::kInt8;
}

// token_x as the projections of it take it: quantised once if any of them has int8 weights.
LinearInput prolog_input(const MlaPrologRequest& request,
                         const Scratch& scratch,
                         Parallel& parallel) {
    const MlaWeights& w = *request.weights;
    const PackedLinear& query = w.shape.q_lora_rank == 0 ? w.weight_uq_qr : w.weight_dq;
    if (!is_int8(query) && !is_int8(w.weight_dkv_kr)) return request.token_x;
    return quantised_input(request.token_x, scratch.int8_x, parallel);
}

// kv, and with a low-rank query cq and n; returns what weight_uq_qr takes.
LinearInput project_down(const MlaPrologRequest& request,
                         const LinearInput& x,
                         const Scratch& scratch,
                         Parallel& parallel) {
    const MlaWeights& w = *request.weights;
    if (w.shape.q_lora_rank == 0) {
        linear(x, w.weight_dkv_kr, scratch.kv, parallel);
        return x;
    }
    const Rows<Bf16> n = request.query_norm.data != nullptr ? request.query_norm : scratch.n;
    // Both projections in one run of the pool: in a step of few rows threads wait longer for each
    // other than they multiply.
    linear_pair(x, {&w.weight_dq, scratch.cq}, {&w.weight_dkv_kr, scratch.kv}, parallel);
    for_rows(parallel, n.num_rows, n.num_cols, [&](size_t first, size_t last, unsigned) {
        rms_norm_scaled(scratch.cq.slice(first, last - first),
                        w.rmsnorm_gamma_cq.data(),
                        w.rmsnorm_epsilon_cq,
                        w.qc_qr_scale,
                        n.slice(first, last - first));
    });
    if (!is_int8(w.weight_uq_qr)) return n;
    return quantised_input(n, scratch.int8_n, parallel);
}

// The absorbed query and the rotated part of one head, for all tokens.
void absorb_head(const MlaPrologRequest& request, Rows<const Bf16> qq, size_t head) {
    const MlaShape& s = request.weights->shape;
    const size_t first = head * (s.qk_nope_head_dim + s.qk_rope_head_dim);
    // This runs on one thread of the pool already.
    SerialParallel serial;
    linear(qq.columns(first, s.qk_nope_head_dim),
           request.weights->weight_uk[head],
           request.query.columns(head * s.kv_lora_rank, s.kv_lora_rank),
           serial);
    for (size_t t = 0; t < qq.num_rows; ++t) {
        rope(qq.row(t) + first + s.qk_nope_head_dim,
             *request.rope,
             static_cast<size_t>(request.batch.positions[t]),
             request.query_rope.row(t) + head * s.qk_rope_head_dim);
    }
}

// The normalised latent of one row of kv, rounded to the type of `to`.
template <typename T>
void write_latent(const MlaWeights& w, Rows<const Bf16> kv_row, T* to) {
    const size_t latent = w.shape.kv_lora_rank;
    rms_norm_scaled(kv_row.columns(0, latent),
                    w.rmsnorm_gamma_ckv.data(),
                    w.rmsnorm_epsilon_ckv,
                    w.kc_scale,
                    make_rows(to, 1, latent));
}

// One row of kv, whose rotated part turns by `position`, as the cache keeps it.
void write_slot(const MlaPrologRequest& request,
                const Scratch& scratch,
                Rows<const Bf16> kv,
                size_t position,
                size_t slot) {
    const MlaWeights& w = *request.weights;
    const LatentCache& cache = request.cache;
    const size_t latent = w.shape.kv_lora_rank;
    const size_t rope_dim = w.shape.qk_rope_head_dim;
    const auto turn = [&](auto* to) { rope(kv.row(0) + latent, *request.rope, position, to); };
    switch (cache.dtype) {
        case KvDtype::kBf16:
            turn(cache.kr + slot * rope_dim);
            return write_latent(w, kv, cache.ckv + slot * latent);
        case KvDtype::kInt8:
            turn(scratch.kr16);
            write_latent(w, kv, scratch.ckv32);
            return LatentRows(cache, latent, rope_dim)
                .write_int8(slot, scratch.ckv32, scratch.kr16);
        case KvDtype::kFp8:
            turn(scratch.kr16);
            write_latent(w, kv, scratch.ckv16);
            return LatentRows(cache, latent, rope_dim).write_fp8(slot, scratch.ckv16, scratch.kr16);
        case KvDtype::kInt8Channel:
            turn(scratch.kr32);
            write_latent(w, kv, scratch.ckv32);
            return LatentRows(cache, latent, rope_dim)
                .write_int8_channels(slot, scratch.ckv32, scratch.kr32);
    }
}

// In token order, so that of equal indices the last token wins.
void write_cache(const MlaPrologRequest& request, const Scratch& scratch) {
    for (size_t t = 0; t < scratch.kv.num_rows; ++t) {
        const int64_t slot = request.batch.cache_index[t];
        if (slot < 0) continue;
        write_slot(request,
                   scratch,
                   scratch.kv.slice(t, 1),
                   static_cast<size_t>(request.batch.positions[t]),
                   static_cast<size_t>(slot));
    }
}

// qq and from it the queries of all heads, and beside them the cache's rows of kv. Where a head's
// columns are whole panels and its task is worth it anyway, one thread does both, and threads wait
// for each other once.
void expand_queries(const MlaPrologRequest& request,
                    const LinearInput& n,
                    const Scratch& scratch,
                    Parallel& parallel) {
    const Rows<Bf16> qq = scratch.qq;
    const MlaWeights& w = *request.weights;
    const size_t head_cols = w.shape.qk_nope_head_dim + w.shape.qk_rope_head_dim;
    const size_t num_products = std::max(qq.num_rows, kMemoryBoundRows) * qq.num_cols *
                                (w.weight_uq_qr.depth() + w.shape.kv_lora_rank);
    if (head_cols % kPanelColumns == 0) {
        const size_t panels = head_cols / kPanelColumns;
        run_where_it_pays(
            parallel, 1 + w.shape.num_heads, num_products, [&](size_t task, unsigned) {
                if (task == 0) return write_cache(request, scratch);
                const size_t head = task - 1;
                linear_panels(n, w.weight_uq_qr, head * panels, (head + 1) * panels, qq);
                absorb_head(request, qq, head);
            });
        return;
    }
    linear(n, w.weight_uq_qr, qq, parallel);
    run_where_it_pays(parallel, 1 + w.shape.num_heads, num_products, [&](size_t task, unsigned) {
        if (task == 0) return write_cache(request, scratch);
        absorb_head(request, qq, task - 1);
    });
}

}  // namespace

size_t mla_prolog_workspace_bytes(const MlaShape& s, size_t num_tokens_max) {
    return 2 * workspace_bytes_of<Bf16>(num_tokens_max * s.q_lora_rank) +
           workspace_bytes_of<Bf16>(num_tokens_max * s.query_columns()) +
           workspace_bytes_of<Bf16>(num_tokens_max * s.kv_columns()) +
           workspace_bytes_of<float>(s.kv_lora_rank) + workspace_bytes_of<Bf16>(s.kv_lora_rank) +
           workspace_bytes_of<Bf16>(s.qk_rope_head_dim) +
           workspace_bytes_of<float>(s.qk_rope_head_dim) +
           workspace_round_up(quantised_input_bytes(num_tokens_max, s.hidden)) +
           workspace_round_up(quantised_input_bytes(num_tokens_max, s.q_lora_rank));
}

Result<> mla_prolog(const MlaPrologRequest& request,
                    std::span<std::byte> workspace,
                    Parallel& parallel) {
    AFD_TRY(check_request(request));
    assert_shapes(request);
    const MlaWeights& w = *request.weights;
    const Scratch scratch = take_scratch(w.shape, request.batch.num_tokens, workspace);

    const LinearInput x = prolog_input(request, scratch, parallel);
    const LinearInput n = project_down(request, x, scratch, parallel);
    expand_queries(request, n, scratch, parallel);
    return {};
}

}  // namespace afd::ops
