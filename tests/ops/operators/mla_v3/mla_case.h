// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random requests of mla_prolog_v3 with memory of their own, for the tests of the MLA operators.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ops/operators/mla_v3/cache_format.h"
#include "ops/operators/mla_v3/fractal_nz.h"
#include "ops/operators/mla_v3/mla_prolog_v3.h"
#include "ops/reference/mla_prolog_v3.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/random_values.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops::test {

// bf16 and fp32: normal with this deviation; int8: all values.
inline Tensor random_tensor(DType dtype,
                            std::vector<size_t> shape,
                            uint32_t seed,
                            float deviation = 1.0f) {
    Tensor tensor(dtype, std::move(shape));
    std::mt19937 engine(seed);
    RandomValues random(seed, deviation);
    for (size_t i = 0; i < tensor.size(); ++i) {
        if (dtype == DType::kBf16) tensor.as<Bf16>()[i] = from_float(random.next());
        if (dtype == DType::kFp32) tensor.as<float>()[i] = random.next();
        if (dtype == DType::kInt8) tensor.as<int8_t>()[i] = static_cast<int8_t>(engine());
    }
    return tensor;
}

inline Tensor positive_tensor(std::vector<size_t> shape, uint32_t seed, float about) {
    Tensor tensor(DType::kFp32, std::move(shape));
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> uniform(0.5f * about, 1.5f * about);
    for (size_t i = 0; i < tensor.size(); ++i) tensor.as<float>()[i] = uniform(engine);
    return tensor;
}

inline Tensor index_tensor(std::vector<size_t> shape, const std::vector<int64_t>& values) {
    Tensor tensor(DType::kInt64, std::move(shape));
    EXPECT_EQ(tensor.size(), values.size());
    std::copy(values.begin(), values.end(), tensor.as<int64_t>());
    return tensor;
}

inline Tensor as_fractal_nz(const Tensor& nd) {
    const auto shape = fractal_nz_shape(nd.view.shape[0], nd.view.shape[1], nd.view.dtype);
    Tensor nz(nd.view.dtype, std::vector<size_t>(shape.begin(), shape.end()));
    EXPECT_TRUE(to_fractal_nz(nd.view, nz.view).ok());
    return nz;
}

// The same bytes under another shape.
template <typename View>
View with_shape(View view, std::initializer_list<size_t> shape) {
    return make_tensor(view.data, view.dtype, shape);
}

// What a case is made of. Uneven sizes, so that no two axes can be taken for each other; NZ cache
// modes need Hckv and Dr in steps of 32 bytes.
struct MlaCaseOptions {
    int64_t weight = 0;
    int64_t kv = 0;
    int64_t query = 0;
    std::string cache_mode = "PA_BSND";
    bool merged = true;  // Axes [T] with T = B·S, else [B, S].
    size_t b = 3;
    size_t s = 5;
    size_t he = 70;
    size_t hcq = 37;  // 0: no low-rank query.
    size_t hckv = 64;
    size_t n = 3;
    size_t d = 11;
    size_t dr = 32;
    size_t block_num = 9;
    size_t block_size = 4;
    int64_t tile_size = 16;
    bool query_norm = true;
    bool smooth = true;
    bool nz_weights = false;
    uint32_t seed = 1;
};

// Of all cache modes, whose last one is TND.
inline std::vector<std::string_view> cache_mode_names() {
    std::vector<std::string_view> names;
    for (int mode = 0; mode <= static_cast<int>(CacheMode::kTnd); ++mode) {
        names.push_back(name_of(static_cast<CacheMode>(mode)));
    }
    return names;
}

inline std::vector<MlaCaseOptions> all_scenarios() {
    std::vector<MlaCaseOptions> cases;
    for (const int digits : {0, 100, 120, 130, 200, 211, 230, 231}) {
        MlaCaseOptions options;
        options.weight = digits / 100;
        options.kv = digits / 10 % 10;
        options.query = digits % 10;
        cases.push_back(options);
    }
    return cases;
}

inline std::string label(const MlaCaseOptions& o) {
    return std::to_string(o.weight) + std::to_string(o.kv) + std::to_string(o.query) + " " +
           o.cache_mode + (o.merged ? " [T]" : " [B, S]");
}

class MlaCase {
  public:
    explicit MlaCase(const MlaCaseOptions& options) : o(options) {
        const size_t t = o.b * o.s;
        const DType full = o.weight == 2 ? DType::kInt8 : DType::kBf16;
        const DType partial = o.weight >= 1 ? DType::kInt8 : DType::kBf16;
        const size_t depth = o.hcq == 0 ? o.he : o.hcq;
        const size_t cols = o.n * (o.d + o.dr);
        token_x = random_tensor(full, tokens({o.he}), o.seed + 1);
        if (o.hcq != 0) {
            weight_dq = random_tensor(full, {o.he, o.hcq}, o.seed + 2, 0.15f);
            rmsnorm_gamma_cq = random_tensor(DType::kBf16, {o.hcq}, o.seed + 6);
        }
        weight_uq_qr = random_tensor(partial, {depth, cols}, o.seed + 3, 0.15f);
        weight_uk = random_tensor(DType::kBf16, {o.n, o.d, o.hckv}, o.seed + 4, 0.3f);
        weight_dkv_kr = random_tensor(full, {o.he, o.hckv + o.dr}, o.seed + 5, 0.15f);
        rmsnorm_gamma_ckv = random_tensor(DType::kBf16, {o.hckv}, o.seed + 7);
        rope_sin = random_tensor(DType::kBf16, tokens({o.dr}), o.seed + 8, 0.7f);
        rope_cos = random_tensor(DType::kBf16, tokens({o.dr}), o.seed + 9, 0.7f);
        make_caches();
        make_index();
        if (o.weight == 2) {
            dequant_scale_x = positive_tensor({t, 1}, o.seed + 10, 0.01f);
            dequant_scale_w_dq = positive_tensor({1, o.hcq}, o.seed + 11, 0.001f);
            dequant_scale_w_dkv_kr = positive_tensor({1, o.hckv + o.dr}, o.seed + 12, 0.001f);
        }
        if (o.weight >= 1) {
            dequant_scale_w_uq_qr = positive_tensor({1, cols}, o.seed + 13, 0.01f);
            if (o.smooth) smooth_scales_cq = positive_tensor({1, o.hcq}, o.seed + 14, 1.0f);
        }
        if (o.kv == 1) quant_scale_ckv = positive_tensor({1}, o.seed + 15, 50.0f);
        if (o.kv == 2) {
            quant_scale_ckv = positive_tensor({1, o.hckv}, o.seed + 15, 50.0f);
            quant_scale_ckr = positive_tensor({1, o.dr}, o.seed + 16, 30.0f);
        }
        if (o.kv == 3) {
            k_nope_clip_alpha = Tensor(DType::kFp32, {1});
            *k_nope_clip_alpha.as<float>() = 0.75f;
        }
        make_outputs();
        if (o.nz_weights) {
            if (o.hcq != 0) weight_dq = as_fractal_nz(weight_dq);
            weight_uq_qr = as_fractal_nz(weight_uq_qr);
            weight_dkv_kr = as_fractal_nz(weight_dkv_kr);
        }
    }

    MlaPrologV3Request request() {
        MlaPrologV3Request r;
        r.rmsnorm_epsilon_cq = 1e-4f;
        r.rmsnorm_epsilon_ckv = 1e-3f;
        r.cache_mode = o.cache_mode;
        r.query_norm_flag = o.query_norm && o.hcq != 0;
        r.weight_quant_mode = o.weight;
        r.kv_cache_quant_mode = o.kv;
        r.query_quant_mode = o.query;
        r.ckvkr_repo_mode = r.quant_scale_repo_mode = o.kv == 3 ? 1 : 0;
        r.tile_size = o.tile_size;
        if (o.hcq != 0) r.qc_qr_scale = 1.25f;
        r.kc_scale = 0.875f;
        r.token_x = token_x.view;
        r.weight_dq = weight_dq.view;
        r.weight_uq_qr = weight_uq_qr.view;
        r.weight_uk = weight_uk.view;
        r.weight_dkv_kr = weight_dkv_kr.view;
        r.rmsnorm_gamma_cq = rmsnorm_gamma_cq.view;
        r.rmsnorm_gamma_ckv = rmsnorm_gamma_ckv.view;
        r.rope_sin = rope_sin.view;
        r.rope_cos = rope_cos.view;
        r.kv_cache = kv_cache.view;
        r.kr_cache = kr_cache.view;
        r.cache_index = cache_index.view;
        r.dequant_scale_x = dequant_scale_x.view;
        r.dequant_scale_w_dq = dequant_scale_w_dq.view;
        r.dequant_scale_w_uq_qr = dequant_scale_w_uq_qr.view;
        r.dequant_scale_w_dkv_kr = dequant_scale_w_dkv_kr.view;
        r.quant_scale_ckv = quant_scale_ckv.view;
        r.quant_scale_ckr = quant_scale_ckr.view;
        r.smooth_scales_cq = smooth_scales_cq.view;
        r.actual_seq_len = actual_seq_len.view;
        r.k_nope_clip_alpha = k_nope_clip_alpha.view;
        r.query = query.view;
        r.query_rope = query_rope.view;
        r.dequant_scale_q_nope = dequant_scale_q_nope.view;
        r.query_norm = query_norm.view;
        r.dequant_scale_q_norm = dequant_scale_q_norm.view;
        return r;
    }

    // Runs the fast path; the results are in the tensors.
    void run(NumericClass numeric_class, Parallel& parallel) {
        const MlaPrologV3Request r = request();
        const Result<MlaPrologV3Weights> weights = pack_mla_prolog_v3(r, numeric_class);
        ASSERT_TRUE(weights.ok()) << weights.error().message;
        const Workspace workspace(mla_prolog_v3_workspace_bytes(weights.value().shape, o.b * o.s));
        const Result<> result = mla_prolog_v3(r, weights.value(), workspace.bytes(), parallel);
        ASSERT_TRUE(result.ok()) << result.error().message;
    }
    void run_portable() {
        SerialParallel serial;
        run(NumericClass::kPortable, serial);
    }
    void run_reference() {
        const Result<> result = reference::mla_prolog_v3(request());
        ASSERT_TRUE(result.ok()) << result.error().message;
    }

    struct Named {
        const char* name;
        const Tensor* tensor;
    };
    std::vector<Named> outputs() const {
        return {{"query", &query},
                {"query_rope", &query_rope},
                {"dequant_scale_q_nope", &dequant_scale_q_nope},
                {"query_norm", &query_norm},
                {"dequant_scale_q_norm", &dequant_scale_q_norm},
                {"kv_cache", &kv_cache},
                {"kr_cache", &kr_cache}};
    }

    MlaCaseOptions o;
    Tensor token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr;
    Tensor rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos;
    Tensor kv_cache, kr_cache, cache_index, actual_seq_len;
    Tensor dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr;
    Tensor quant_scale_ckv, quant_scale_ckr, smooth_scales_cq, k_nope_clip_alpha;
    Tensor query, query_rope, dequant_scale_q_nope, query_norm, dequant_scale_q_norm;

  private:
    // A shape that begins with the token axes.
    std::vector<size_t> tokens(std::vector<size_t> rest) const {
        if (o.merged) {
            rest.insert(rest.begin(), o.b * o.s);
        } else {
            rest.insert(rest.begin(), {o.b, o.s});
        }
        return rest;
    }

    void make_caches() {
        const DType kv = o.kv == 0 ? DType::kBf16 : DType::kInt8;
        const DType kr = o.kv == 2 ? DType::kInt8 : DType::kBf16;
        const size_t tiles = o.hckv / static_cast<size_t>(o.tile_size);
        const size_t cols = o.kv == 3 ? o.hckv + 2 * o.dr + 4 * tiles : o.hckv;
        const auto shape = [&](size_t last) -> std::vector<size_t> {
            if (o.cache_mode == "TND") return {o.b * o.s, 1, last};
            if (o.cache_mode == "BSND") return {o.b, o.s, 1, last};
            return {o.block_num, o.block_size, 1, last};
        };
        // 0x7f7f is a large bf16: a row that nobody wrote shows.
        kv_cache = Tensor(kv, shape(cols), 0x7f);
        if (o.kv != 3) kr_cache = Tensor(kr, shape(o.dr), 0x7f);
    }

    // Rows or blocks in a scattered order; the sequences of merged axes have uneven lengths.
    void make_index() {
        const size_t t = o.b * o.s;
        std::vector<int64_t> places;
        const bool blocks = o.cache_mode.starts_with("PA_BLK");
        if (o.cache_mode == "BSND" || o.cache_mode == "TND") return;
        const size_t limit = blocks ? o.block_num : o.block_num * o.block_size;
        for (size_t i = 0; i < limit; ++i) places.push_back(static_cast<int64_t>(i));
        std::shuffle(places.begin(), places.end(), std::mt19937(o.seed + 20));
        if (!blocks) {
            places.resize(t);
            cache_index = index_tensor(tokens({}), places);
            return;
        }
        if (!o.merged) {
            const size_t per_sequence = (o.s + o.block_size - 1) / o.block_size;
            places.resize(o.b * per_sequence);
            cache_index = index_tensor({o.b, per_sequence}, places);
            return;
        }
        actual_seq_len = Tensor(DType::kInt32, {o.b});
        size_t begin = 0;
        size_t num_blocks = 0;
        for (size_t sequence = 0; sequence < o.b; ++sequence) {
            const size_t end = sequence + 1 == o.b ? t : begin + (t - begin) / (o.b - sequence) / 2;
            actual_seq_len.as<int32_t>()[sequence] = static_cast<int32_t>(end);
            num_blocks += (end - begin + o.block_size - 1) / o.block_size;
            begin = end;
        }
        places.resize(num_blocks);
        cache_index = index_tensor({num_blocks}, places);
    }

    void make_outputs() {
        const size_t t = o.b * o.s;
        const DType quantised = o.query == 1 ? DType::kInt8 : DType::kBf16;
        query = Tensor(quantised, tokens({o.n, o.hckv}), 0x55);
        query_rope = Tensor(DType::kBf16, tokens({o.n, o.dr}), 0x55);
        if (o.query == 1) dequant_scale_q_nope = Tensor(DType::kFp32, {t, o.n, 1}, 0x55);
        if (!o.query_norm || o.hcq == 0) return;
        query_norm = Tensor(o.weight >= 1 ? DType::kInt8 : DType::kBf16, tokens({o.hcq}), 0x55);
        if (o.weight >= 1) dequant_scale_q_norm = Tensor(DType::kFp32, {t, 1}, 0x55);
    }
};

inline void expect_same_bytes(const MlaCase& have, const MlaCase& want) {
    const auto wanted = want.outputs();
    size_t i = 0;
    for (const auto& [name, tensor] : have.outputs()) {
        EXPECT_TRUE(tensor->bytes == wanted[i++].tensor->bytes) << name << ", " << label(have.o);
    }
}

}  // namespace afd::ops::test
