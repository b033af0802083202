// SPDX-License-Identifier: Apache-2.0

// The example of the seed's page, with its own sizes, unquantised and fully quantised.

#include <gtest/gtest.h>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::all_scenarios;
using test::MlaCase;
using test::MlaCaseOptions;
using test::Tensor;

// The seed's example: B 8, S 2, He 7168, Hcq 1536, Hckv 512, N 32, D 128, Dr 64, 64 blocks of 128.
// Every token through the fast path; the reference takes the first two, which row invariance makes
// as good.
void check_seed_example(MlaCaseOptions options) {
    options.merged = false;
    options.nz_weights = true;
    options.b = 8;
    options.s = 2;
    options.he = 7168;
    options.hcq = 1536;
    options.hckv = 512;
    options.n = 32;
    options.d = 128;
    options.dr = 64;
    options.block_num = 64;
    options.block_size = 128;
    options.tile_size = 128;
    MlaCase all(options);
    if (options.kv == 3) {
        EXPECT_EQ(all.kv_cache.view.shape[3], 656U);
    }
    MlaCase two = all;
    MlaCase threaded = all;
    all.run_portable();
    threads::ThreadPool threads(3);
    threaded.run(NumericClass::kPortable, threads);
    test::expect_same_bytes(threaded, all);
    two.o.b = 1;
    for (Tensor* tensor : {&two.token_x, &two.rope_sin, &two.rope_cos, &two.cache_index}) {
        tensor->view.shape[0] = 1;
    }
    for (Tensor* tensor : {&two.query, &two.query_rope, &two.query_norm}) tensor->view.shape[0] = 1;
    for (Tensor* tensor :
         {&two.dequant_scale_x, &two.dequant_scale_q_nope, &two.dequant_scale_q_norm}) {
        if (tensor->view.given()) tensor->view.shape[0] = 2;
    }
    two.run_reference();
    const auto wanted = two.outputs();
    size_t output = 0;
    for (const auto& [name, tensor] : all.outputs()) {
        const Tensor& want = *wanted[output++].tensor;
        if (name[0] != 'k') {
            const auto bytes = static_cast<ptrdiff_t>(tensor->bytes.size() / 8);
            const auto begin = tensor->bytes.begin();
            EXPECT_TRUE(std::equal(begin, begin + bytes, want.bytes.begin())) << name;
            continue;
        }
        const size_t row_bytes = tensor->bytes.size() / (64 * 128);
        for (size_t t = 0; t < 2; ++t) {
            const auto row = static_cast<size_t>(all.cache_index.as<int64_t>()[t]);
            EXPECT_TRUE(row_bytes == 0 || std::memcmp(&tensor->bytes[row * row_bytes],
                                                      &want.bytes[row * row_bytes],
                                                      row_bytes) == 0)
                << name;
        }
    }
}

// Covers: mla_prolog_v3 B=8 S=2 He=7168 Hcq=1536 Hckv=512 N=32 D=128 Dr=64 BlockSize=128
// Example: mla_prolog_v3: the single-operator call, FRACTAL_NZ weights
TEST(MlaPrologV3, RunsTheSeedsExample) {
    check_seed_example({});
}

// Covers: mla_prolog_v3 tile_size=128 Dtile=656
TEST(MlaPrologV3, RunsTheSeedsExampleFullyQuantisedWithTileRowsOf656Bytes) {
    check_seed_example(all_scenarios().back());
}

}  // namespace
}  // namespace afd::ops
