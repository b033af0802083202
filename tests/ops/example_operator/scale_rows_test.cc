// SPDX-License-Identifier: Apache-2.0

// ScaleRows was added by docs/adding/operator.md alone; here it is called as every operator is:
// from C++, and by name through its record.

#include "tests/ops/example_operator/scale_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "calls/operator_call.h"
#include "tests/ops/example_operator/scale_rows_reference.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"
#include "threads/thread_pool.h"

namespace afd::ops::example {
namespace {

using test::Tensor;

struct Case {
    Tensor x, factors, y;
    ScaleRowsRequest request;

    Case(DType dtype, size_t num_rows, size_t hidden)
        : x(dtype, {num_rows, hidden}), factors(DType::kFp32, {num_rows}), y(x.view) {
        x.fill(1);
        factors.fill(2);
        request = {.mode = 0, .gain = 0.3f, .x = x.view, .factors = factors.view, .y = y.view};
    }
};

// Goal: the reference's bits. Method: both dtypes and modes, with and without factors, 0 rows, 1
// and many, 1 and 3 threads.
TEST(ScaleRows, MatchesTheReferenceBitByBit) {
    for (const DType dtype : {DType::kBf16, DType::kFp32}) {
        for (const size_t num_rows : {0, 1, 200}) {
            for (const unsigned bits : {0u, 1u, 2u, 3u}) {
                Case c(dtype, num_rows, 301);
                c.request.mode = bits % 2;
                if (bits / 2 == 1) c.request.factors = {};
                Tensor want = c.y;
                ScaleRowsRequest plain = c.request;
                plain.y = want.view;
                ASSERT_TRUE(reference::scale_rows(plain).ok());
                for (const unsigned num_threads : {1u, 3u}) {
                    threads::ThreadPool parallel(num_threads);
                    ASSERT_TRUE(scale_rows(c.request, {}, parallel).ok());
                    EXPECT_EQ(c.y.bytes, want.bytes);
                }
            }
        }
    }
}

// By hand: what the formula says of four numbers.
TEST(ScaleRows, ScalesByFactorAndGain) {
    Case c(DType::kFp32, 2, 2);
    c.x.set({1.0f, 2.0f, 3.0f, 4.0f});
    c.factors.set({0.5f, 2.0f});
    c.request.gain = 4.0f;
    SerialParallel serial;
    ASSERT_TRUE(scale_rows(c.request, {}, serial).ok());
    EXPECT_EQ(c.y.values<float>(), (std::vector<float>{2, 4, 24, 32}));
    c.request.mode = 1;
    ASSERT_TRUE(scale_rows(c.request, {}, serial).ok());
    EXPECT_EQ(c.y.values<float>(), (std::vector<float>{4.5f, 5, 10, 12}));
}

TEST(ScaleRows, RefusesWithNameValueAndWhatIsAllowed) {
    const auto message = [](auto change) {
        Case c(DType::kBf16, 2, 2);
        change(c.request);
        SerialParallel serial;
        const Result<> fast = scale_rows(c.request, {}, serial);
        const Result<> plain = reference::scale_rows(c.request);
        EXPECT_FALSE(fast.ok() || plain.ok());
        if (fast.ok() || plain.ok()) return std::string();
        EXPECT_EQ(fast.error().message, plain.error().message);
        return fast.error().message;
    };
    EXPECT_EQ(message([](ScaleRowsRequest& r) { r.mode = 2; }),
              "scale_rows: mode is 2; allowed are 0, 1");
    EXPECT_EQ(message([](ScaleRowsRequest& r) { r.factors.shape[0] = 3; }),
              "scale_rows: factors has shape [3]; it must be [N] with N = 2 (x)");
    EXPECT_EQ(message([](ScaleRowsRequest& r) { r.x.dtype = DType::kFp32; }),
              "scale_rows: y has dtype bf16; it must be that of x, fp32");
}

Result<> prepare_scale_rows(calls::OperatorCall& call) {
    auto& r = call.keep<ScaleRowsRequest>();
    AFD_TRY(call.fill(kScaleRowsSpec, r));
    r.y = calls::shape_of(r.x.dtype, {calls::extent(r.x, 0), calls::extent(r.x, 1)});
    AFD_TRY(check_scale_rows(r));
    call.returns(kScaleRowsSpec, r);
    call.ready(
        scale_rows_workspace_bytes(),
        [&r, &parallel = call.parallel()](auto workspace) {
            return scale_rows(r, workspace, parallel);
        },
        [&r] { return reference::scale_rows(r); });
    return {};
}

// By name, as afd-op and Python call it: attributes from JSON, tensors by their names.
TEST(ScaleRows, RunsByName) {
    const calls::RegisteredOperator entry{&kScaleRowsSpec, prepare_scale_rows};
    SerialParallel serial;
    float x[] = {3, 5};
    for (const bool is_reference : {false, true}) {
        const calls::CallOptions options{.is_reference = is_reference, .parallel = &serial};
        auto call = calls::OperatorCall::make(entry,
                                              {{"x", make_tensor<void>(x, DType::kFp32, {1, 2})}},
                                              {{"gain", 2.0}, {"mode", 1}},
                                              options);
        ASSERT_TRUE(call.ok()) << call.error().message;
        ASSERT_EQ(call.value()->outputs().size(), 1u);
        const calls::NamedTensor& y = call.value()->outputs()[0];
        EXPECT_EQ(y.name, "y");
        EXPECT_EQ(y.view.rank, 2u);
        EXPECT_EQ(y.view.num_elements(), 2u);
        float out[2] = {};
        void* const memory[] = {out};
        const Result<> done = call.value()->run(memory, {});
        ASSERT_TRUE(done.ok()) << done.error().message;
        EXPECT_EQ(out[0], 5.0f);
        EXPECT_EQ(out[1], 7.0f);
    }
    const auto refused =
        calls::OperatorCall::make(entry, {}, {{"gian", 2.0}}, {.parallel = &serial});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "scale_rows: there is no attribute gian; there are mode, gain; did you mean gain?");
}

}  // namespace
}  // namespace afd::ops::example
