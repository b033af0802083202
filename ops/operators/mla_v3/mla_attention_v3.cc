// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_attention_v3.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "ops/attention/head_attention.h"
#include "ops/cpu/kernels.h"
#include "ops/linear/panel_loop.h"
#include "ops/operators/mla_v3/cache_reader.h"
#include "ops/operators/mla_v3/mla_attention_v3_plan.h"
#include "ops/operators/mla_v3/token_axes.h"
#include "ops/tensor/lanes.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// The state of a group of heads, and over a quantised cache their queries.
struct GroupScratch {
    cpu::HeadsState heads;
    float* query32;  // [kHeadsPerTask, Hckv + Dr]
};

// One thread's memory: its groups, and one block of cache rows as bf16 or as fp32.
struct ThreadScratch {
    std::array<GroupScratch, kGroupsTogetherMax> groups;
    Bf16* ckv;
    Bf16* kr;
    float* ckv32;
    float* kr32;
    std::byte* row;
};

size_t groups_of_run_max(const MlaShape& s) {
    return groups_together_max(
        div_up(s.num_heads, kHeadsPerTask), s.kv_lora_rank, s.qk_rope_head_dim);
}

// Of any kind: a tile row has at most a scale for each of its elements.
size_t row_bytes_max(const MlaShape& s) {
    return 5 * s.kv_lora_rank + 2 * s.qk_rope_head_dim;
}

size_t thread_bytes(const MlaShape& s) {
    const size_t group_bytes =
        heads_state_bytes(s.kv_lora_rank, s.qk_rope_head_dim) +
        workspace_bytes_of<float>(kHeadsPerTask * (s.kv_lora_rank + s.qk_rope_head_dim));
    return groups_of_run_max(s) * group_bytes +
           workspace_bytes_of<Bf16>(kAttentionBlock * s.kv_lora_rank) +
           workspace_bytes_of<Bf16>(kAttentionBlock * s.qk_rope_head_dim) +
           workspace_bytes_of<float>(kAttentionBlock * s.kv_lora_rank) +
           workspace_bytes_of<float>(kAttentionBlock * s.qk_rope_head_dim) +
           workspace_bytes_of<std::byte>(row_bytes_max(s));
}

ThreadScratch take_thread_scratch(const MlaShape& s, std::span<std::byte> bytes) {
    WorkspaceCursor cursor(bytes);
    ThreadScratch scratch{};
    for (size_t i = 0; i < groups_of_run_max(s); ++i) {
        scratch.groups[i].heads = take_heads_state(s.kv_lora_rank, s.qk_rope_head_dim, cursor);
        scratch.groups[i].query32 =
            cursor.take<float>(kHeadsPerTask * (s.kv_lora_rank + s.qk_rope_head_dim));
    }
    scratch.ckv = cursor.take<Bf16>(kAttentionBlock * s.kv_lora_rank);
    scratch.kr = cursor.take<Bf16>(kAttentionBlock * s.qk_rope_head_dim);
    scratch.ckv32 = cursor.take<float>(kAttentionBlock * s.kv_lora_rank);
    scratch.kr32 = cursor.take<float>(kAttentionBlock * s.qk_rope_head_dim);
    scratch.row = cursor.take<std::byte>(row_bytes_max(s));
    return scratch;
}

// Some heads of one token.
struct HeadTask {
    size_t token;
    size_t first_head;
    size_t num_heads;
    size_t num_positions;
};

class Attention {
  public:
    Attention(const MlaAttentionV3Request& request,
              const MlaAttentionV3Plan& plan,
              const cpu::Kernels& kernels,
              Rows<Bf16> latent)
        : r_(request),
          plan_(plan),
          s_(plan.shape),
          kernels_(kernels),
          reader_(request, plan),
          latent_(latent) {}

    void attend(const HeadTask& task, ThreadScratch& scratch) const {
        if (plan_.kv_quant == KvQuant::kNone) {
            attend_unquantised(task, scratch);
        } else {
            attend_quantised(task, scratch);
        }
    }

  private:
    size_t place(const HeadTask& task, size_t head) const {
        return task.token * s_.num_heads + task.first_head + head;
    }

    Bf16* latent_of(const HeadTask& task, size_t head) const {
        return latent_.row(task.token) + (task.first_head + head) * s_.kv_lora_rank;
    }

    void attend_unquantised(const HeadTask& task, ThreadScratch& scratch) const {
        const size_t latent = s_.kv_lora_rank;
        const size_t rope_dim = s_.qk_rope_head_dim;
        const CacheRowOfPosition rows(r_, plan_.cache_mode, task.token);
        const auto block_of = [&](size_t first, size_t count) {
            cpu::AttendBlock block{.ckv = scratch.ckv,
                                   .kr = scratch.kr,
                                   .num_positions = count,
                                   .scale = r_.softmax_scale};
            // Without a copy where the layout allows it: a block of rows that follow each other is
            // what the kernel reads.
            if (lie_together(rows, first, count)) {
                block.ckv = data_of<Bf16>(r_.kv_cache) + rows.row(first) * latent;
                block.kr = data_of<Bf16>(r_.kr_cache) + rows.row(first) * rope_dim;
                return block;
            }
            for (size_t i = 0; i < count; ++i) {
                reader_.read(
                    rows.row(first + i), scratch.ckv + i * latent, scratch.kr + i * rope_dim);
            }
            return block;
        };
        cpu::HeadsState& heads = scratch.groups[0].heads;
        heads.num_heads = task.num_heads;
        attend_positions({.query = data_of<Bf16>(r_.query) + place(task, 0) * latent,
                          .query_rope = data_of<Bf16>(r_.query_rope) + place(task, 0) * rope_dim},
                         0,
                         task.num_positions,
                         kernels_,
                         heads,
                         block_of,
                         latent_of(task, 0));
    }

    // Whether the rows of these positions follow each other in memory.
    bool lie_together(const CacheRowOfPosition& rows, size_t first, size_t count) const {
        if (plan_.kv_rows.in_columns) return false;
        const size_t row = rows.row(first);
        for (size_t i = 1; i < count; ++i) {
            if (rows.row(first + i) != row + i) return false;
        }
        return true;
    }

    // In fp32: a latent times its scale is no bf16 number, and bf16 rows are all that the classes'
    // kernels read. A block is expanded once for all groups of heads.
    void attend_quantised(const HeadTask& task, ThreadScratch& scratch) const {
        const CacheRowOfPosition rows(r_, plan_.cache_mode, task.token);
        const size_t num_groups = div_up(task.num_heads, kHeadsPerTask);
        for (size_t i = 0; i < num_groups; ++i) begin_group(group_of(task, i), scratch.groups[i]);
        for (size_t first = 0; first < task.num_positions; first += kAttentionBlock) {
            const size_t count = std::min(kAttentionBlock, task.num_positions - first);
            for (size_t i = 0; i < count; ++i) {
                reader_.read(rows.row(first + i),
                             scratch.ckv32 + i * s_.kv_lora_rank,
                             scratch.kr32 + i * s_.qk_rope_head_dim,
                             scratch.row);
            }
            for (size_t i = 0; i < num_groups; ++i) {
                const HeadTask group = group_of(task, i);
                for (size_t h = 0; h < group.num_heads; ++h) {
                    attend_block(group, h, count, scratch, scratch.groups[i]);
                }
            }
        }
        for (size_t i = 0; i < num_groups; ++i) {
            finish_group(group_of(task, i), scratch.groups[i].heads);
        }
    }

    static HeadTask group_of(const HeadTask& task, size_t index) {
        HeadTask group = task;
        group.first_head += index * kHeadsPerTask;
        group.num_heads = std::min(kHeadsPerTask, task.num_heads - index * kHeadsPerTask);
        return group;
    }

    void begin_group(const HeadTask& group, const GroupScratch& scratch) const {
        widen_queries(group, scratch.query32);
        const cpu::HeadsState& heads = scratch.heads;
        std::fill_n(heads.maximum, group.num_heads, -std::numeric_limits<float>::infinity());
        std::fill_n(heads.sum, group.num_heads, 0.0f);
        std::fill_n(heads.o, group.num_heads * heads.o_stride, 0.0f);
    }

    void finish_group(const HeadTask& group, const cpu::HeadsState& heads) const {
        for (size_t h = 0; h < group.num_heads; ++h) {
            for (size_t c = 0; c < s_.kv_lora_rank; ++c) {
                latent_of(group, h)[c] = from_float(heads.o[h * heads.o_stride + c] / heads.sum[h]);
            }
        }
    }

    // One block of quantised rows, widened, for one head.
    void attend_block(const HeadTask& task,
                      size_t head,
                      size_t count,
                      const ThreadScratch& rows,
                      const GroupScratch& group) const {
        const cpu::HeadsState& heads = group.heads;
        score_head(task, head, count, rows, group);
        kernels_.softmax_step(heads.scores + head * kAttentionBlock,
                              count,
                              heads.maximum + head,
                              heads.sum + head,
                              heads.alpha + head,
                              heads.p + head * kAttentionBlock);
        accumulate_head(head, count, rows, heads);
    }

    void widen_queries(const HeadTask& task, float* query32) const {
        const size_t latent = s_.kv_lora_rank;
        const size_t rope_dim = s_.qk_rope_head_dim;
        for (size_t h = 0; h < task.num_heads; ++h) {
            float* to = query32 + h * (latent + rope_dim);
            const size_t first = place(task, h) * latent;
            for (size_t i = 0; i < latent; ++i) {
                to[i] = plan_.quantised_query
                            ? static_cast<float>(data_of<int8_t>(r_.query)[first + i])
                            : to_float(data_of<Bf16>(r_.query)[first + i]);
            }
            const Bf16* rotated = data_of<Bf16>(r_.query_rope) + place(task, h) * rope_dim;
            for (size_t i = 0; i < rope_dim; ++i) to[latent + i] = to_float(rotated[i]);
        }
    }

    static void add_products(const float* x, const float* y, size_t count, float* lanes) {
        size_t i = 0;
        for (; i + kLanes <= count; i += kLanes) {
            for (size_t j = 0; j < kLanes; ++j) lanes[j] = lanes[j] + x[i + j] * y[i + j];
        }
        for (size_t j = 0; i + j < count; ++j) lanes[j] = lanes[j] + x[i + j] * y[i + j];
    }

    void score_head(const HeadTask& task,
                    size_t head,
                    size_t count,
                    const ThreadScratch& rows,
                    const GroupScratch& group) const {
        const size_t latent = s_.kv_lora_rank;
        const size_t rope_dim = s_.qk_rope_head_dim;
        const float* query = group.query32 + head * (latent + rope_dim);
        for (size_t position = 0; position < count; ++position) {
            float lanes[kLanes] = {};
            add_products(query, rows.ckv32 + position * latent, latent, lanes);
            add_products(query + latent, rows.kr32 + position * rope_dim, rope_dim, lanes);
            float sum = sum_lanes(lanes);
            if (plan_.quantised_query) {
                sum = sum * data_of<float>(r_.dequant_scale_q_nope)[place(task, head)];
            }
            // First the query's scale, then the softmax's: two roundings in a fixed order.
            group.heads.scores[head * kAttentionBlock + position] = sum * r_.softmax_scale;
        }
    }

    void accumulate_head(size_t head,
                         size_t count,
                         const ThreadScratch& rows,
                         const cpu::HeadsState& heads) const {
        const size_t latent = s_.kv_lora_rank;
        float* o = heads.o + head * padded_latent(latent);
        for (size_t c = 0; c < latent; ++c) o[c] = o[c] * heads.alpha[head];
        for (size_t position = 0; position < count; ++position) {
            const float p = to_float(heads.p[head * kAttentionBlock + position]);
            const float* row = rows.ckv32 + position * latent;
            for (size_t c = 0; c < latent; ++c) o[c] = o[c] + p * row[c];
        }
    }

    const MlaAttentionV3Request& r_;
    const MlaAttentionV3Plan& plan_;
    const MlaShape& s_;
    const cpu::Kernels& kernels_;
    CacheReader reader_;
    Rows<Bf16> latent_;
};

void assert_weights(const MlaAttentionV3Plan& plan, const MlaAttentionV3Weights& w) {
    AFD_ASSERT(w.weight_uv.size() == plan.shape.num_heads &&
                   w.weight_uv[0].depth() == plan.shape.kv_lora_rank &&
                   w.weight_uv[0].num_outputs() == plan.shape.v_head_dim &&
                   w.weight_o.empty() != plan.has_weight_o,
               "packed for N %zu, V %zu, Hckv %zu",
               w.weight_uv.size(),
               w.weight_uv[0].num_outputs(),
               w.weight_uv[0].depth());
}

// Scores and weighted sums of all tokens.
size_t count_products(const MlaAttentionV3Request& r, const MlaAttentionV3Plan& plan) {
    const MlaShape& s = plan.shape;
    size_t num_scores = 0;
    for (size_t t = 0; t < plan.num_tokens; ++t) {
        num_scores += static_cast<size_t>(data_of<int32_t>(r.positions)[t]) + 1;
    }
    return num_scores * s.num_heads * (2 * s.kv_lora_rank + s.qk_rope_head_dim);
}

}  // namespace

Result<MlaAttentionV3Request> with_output_shapes(const MlaAttentionV3Request& r) {
    const bool has_weight_o = r.weight_o.num_elements() != 0;
    const size_t values = size_from_end(r.weight_uv, 2) * size_from_end(r.weight_uv, 1);
    const size_t hidden = has_weight_o ? size_from_end(r.weight_o, 0) : values;
    MlaAttentionV3Request whole = r;
    whole.attention_out = with_token_axes(DType::kBf16, r.query, 2, {hidden});
    AFD_TRY(plan_mla_attention_v3(whole));
    return whole;
}

size_t mla_attention_v3_workspace_bytes(const MlaShape& s,
                                        size_t num_tokens_max,
                                        unsigned num_threads) {
    return workspace_bytes_of<Bf16>(num_tokens_max * s.latent_columns()) +
           workspace_bytes_of<Bf16>(num_tokens_max * s.value_columns()) +
           num_threads * thread_bytes(s);
}

Result<MlaAttentionV3Weights> pack_mla_attention_v3(const MlaAttentionV3Request& request,
                                                    NumericClass numeric_class) {
    MlaAttentionV3Plan plan;
    AFD_ASSIGN(plan, plan_mla_attention_v3(request));
    const MlaShape& s = plan.shape;
    MlaAttentionV3Weights weights;
    const auto uv = make_rows(data_of<Bf16>(request.weight_uv), s.value_columns(), s.kv_lora_rank);
    for (size_t head = 0; head < s.num_heads; ++head) {
        weights.weight_uv.push_back(
            PackedLinear::pack(uv.slice(head * s.v_head_dim, s.v_head_dim), numeric_class));
    }
    if (plan.has_weight_o) {
        weights.weight_o = PackedLinear::pack_transposed(
            make_rows(data_of<Bf16>(request.weight_o), s.value_columns(), s.hidden), numeric_class);
    }
    return weights;
}

Result<> mla_attention_v3(const MlaAttentionV3Request& request,
                          const MlaAttentionV3Weights& weights,
                          std::span<std::byte> workspace,
                          Parallel& parallel) {
    MlaAttentionV3Plan plan;
    AFD_ASSIGN(plan, plan_mla_attention_v3(request));
    assert_weights(plan, weights);
    const MlaShape& s = plan.shape;
    const size_t t = plan.num_tokens;
    if (t == 0) return {};
    WorkspaceCursor cursor(workspace);
    const size_t latent_cols = s.latent_columns();
    const size_t value_cols = s.value_columns();
    const auto latent = make_rows(cursor.take<Bf16>(t * latent_cols), t, latent_cols);
    const auto values = make_rows(cursor.take<Bf16>(t * value_cols), t, value_cols);
    std::byte* scratch = cursor.take<std::byte>(parallel.num_threads() * thread_bytes(s));
    const Attention attention(
        request, plan, cpu::kernels(weights.weight_uv[0].numeric_class()), latent);

    const size_t num_groups = div_up(s.num_heads, kHeadsPerTask);
    const size_t together =
        plan.kv_quant == KvQuant::kNone
            ? 1
            : groups_together(num_groups, groups_of_run_max(s), t, parallel.num_threads());
    const size_t heads_per_task = together * kHeadsPerTask;
    const size_t tasks_per_token = div_up(num_groups, together);
    const auto attend_task = [&](size_t task, unsigned thread) {
        const size_t token = task / tasks_per_token;
        const size_t first_head = task % tasks_per_token * heads_per_task;
        ThreadScratch own =
            take_thread_scratch(s, {scratch + thread * thread_bytes(s), thread_bytes(s)});
        attention.attend({token,
                          first_head,
                          std::min(heads_per_task, s.num_heads - first_head),
                          static_cast<size_t>(data_of<int32_t>(request.positions)[token]) + 1},
                         own);
    };
    run_where_it_pays(parallel, t * tasks_per_token, count_products(request, plan), attend_task);

    const auto out = make_rows(static_cast<Bf16*>(request.attention_out.data), t, s.hidden);
    const Rows<Bf16> heads = plan.has_weight_o ? values : out;
    const auto expand_task = [&](size_t head, unsigned) {
        SerialParallel serial;
        linear(latent.columns(head * s.kv_lora_rank, s.kv_lora_rank),
               weights.weight_uv[head],
               heads.columns(head * s.v_head_dim, s.v_head_dim),
               serial);
    };
    run_where_it_pays(parallel, s.num_heads, t * latent_cols * s.v_head_dim, expand_task);
    if (plan.has_weight_o) linear(values, weights.weight_o, out, parallel);
    return {};
}

}  // namespace afd::ops
