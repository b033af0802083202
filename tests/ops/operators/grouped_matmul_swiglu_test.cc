// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/grouped_matmul_swiglu.h"

#include <gtest/gtest.h>

#include "ops/linear/linear.h"
#include "ops/reference/grouped_matmul_swiglu.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;
using Request = GroupedMatmulSwigluRequest;

// A request with its memory. Every expert but each third has rows; some rows belong to none.
struct Case {
    Tensor x, weight, group_list, x_scale, weight_scale, output, output_scale;
    std::vector<int64_t> counts;
    Request request;

    Case(DType dtype,
         size_t num_experts,
         size_t depth,
         size_t intermediate,
         int64_t type,
         int64_t quant_mode) {
        size_t num_rows = 2;
        for (size_t e = 0; e < num_experts; ++e) {
            counts.push_back(static_cast<int64_t>(e % 3 == 1 ? 0 : 1 + (e * 17) % 29));
            num_rows += static_cast<size_t>(counts.back());
        }
        x = Tensor(dtype, {num_rows, depth}).fill(1);
        weight = Tensor(dtype, {num_experts, depth, 2 * intermediate}).fill(2, 0.2f);
        if (dtype == DType::kInt8) {
            x_scale = Tensor(DType::kFp32, {num_rows}).fill(3, 0.01f);
            weight_scale = Tensor(DType::kFp32, {num_experts, 2 * intermediate}).fill(4, 0.01f);
        }
        make_group_list(type);
        request.group_list_type = type;
        request.quant_mode = quant_mode;
        const bool is_quantised = quant_mode == 1;
        output = Tensor(is_quantised ? DType::kInt8 : DType::kBf16, {num_rows, intermediate});
        if (is_quantised) output_scale = Tensor(DType::kFp32, {num_rows});
        request.x = x.view;
        request.weight = weight.view;
        request.group_list = group_list.view;
        request.x_scale = x_scale.view;
        request.weight_scale = weight_scale.view;
        request.output = output.view;
        request.output_scale = output_scale.view;
    }

    void make_group_list(int64_t type) {
        const size_t num_experts = counts.size();
        group_list = type == 2 ? Tensor(DType::kInt64, {num_experts + 1, 2})
                               : Tensor(DType::kInt64, {num_experts});
        std::fill_n(group_list.as<int64_t>(), group_list.view.num_elements(), 0);
        int64_t* out = group_list.as<int64_t>();
        int64_t sum = 0;
        for (size_t e = 0; e < num_experts; ++e) {
            sum += counts[e];
            if (type == 0) *out++ = sum;
            if (type == 1) *out++ = counts[e];
            if (type == 2 && counts[e] > 0) {
                *out++ = static_cast<int64_t>(e);
                *out++ = counts[e];
            }
        }
    }
};

Result<> run_fast(const Request& request, unsigned num_threads) {
    threads::ThreadPool parallel(num_threads);
    const Workspace workspace(check_grouped_matmul_swiglu(request).ok()
                                  ? grouped_matmul_swiglu_workspace_bytes(request, num_threads)
                                  : 0);
    return grouped_matmul_swiglu(request, workspace.bytes(), parallel);
}

void expect_reference_bits(const Case& c) {
    Tensor want = c.output;
    Tensor want_scale = c.output_scale;
    Request request = c.request;
    request.output = want.view;
    request.output_scale = want_scale.view;
    ASSERT_TRUE(reference::grouped_matmul_swiglu(request).ok());
    for (const unsigned num_threads : {1u, 3u}) {
        Tensor got = c.output;
        Tensor got_scale = c.output_scale;
        request.output = got.view;
        request.output_scale = got_scale.view;
        const Result<> result = run_fast(request, num_threads);
        ASSERT_TRUE(result.ok()) << result.error().message;
        EXPECT_EQ(got.bytes, want.bytes);
        EXPECT_EQ(got_scale.bytes, want_scale.bytes);
    }
}

// Goal: int8 in every class and bf16 in class portable have the reference's bits, rows after the
// last group included. Method: all forms of group list, odd sizes, 1 and 3 threads.
// Covers: grouped_matmul_swiglu x=bf16,int8 weight=bf16,int8 group_list_type=0,1,2
// Covers: grouped_matmul_swiglu x_scale=given,none weight_scale=given,none quant_mode=-1,1
TEST(GroupedMatmulSwiglu, MatchesTheReferenceBitByBit) {
    for (const int64_t quant_mode : {-1, 1}) {
        for (const int64_t type : {0, 1, 2}) {
            for (const size_t intermediate : {1, 16, 37}) {
                for (const size_t depth : {1, 64, 131}) {
                    Case portable(DType::kBf16, 5, depth, intermediate, type, quant_mode);
                    portable.request.numeric_class = NumericClass::kPortable;
                    expect_reference_bits(portable);
                    for (const NumericClass numeric_class : supported_numeric_classes()) {
                        Case c(DType::kInt8, 5, depth, intermediate, type, quant_mode);
                        c.request.numeric_class = numeric_class;
                        expect_reference_bits(c);
                    }
                }
            }
        }
    }
}

// Without depth every sum is 0, whatever was on the stack. Oracle: the reference, which says so.
TEST(GroupedMatmulSwiglu, WithoutDepthIsZeroInEveryClass) {
    for (const NumericClass numeric_class : supported_numeric_classes()) {
        Case c(DType::kBf16, 3, 0, 37, 1, -1);
        c.output.fill(5);
        c.request.numeric_class = numeric_class;
        expect_reference_bits(c);
    }
}

// Oracle: swiglu() over the expert's packed weights, the live path of the class.
TEST(GroupedMatmulSwiglu, HasTheBitsOfTheLivePathInEveryClass) {
    constexpr size_t kDepth = 131;
    constexpr size_t kIntermediate = 37;
    for (const NumericClass numeric_class : supported_numeric_classes()) {
        Case c(DType::kBf16, 4, kDepth, kIntermediate, 1, -1);
        c.request.numeric_class = numeric_class;
        ASSERT_TRUE(run_fast(c.request, 2).ok());
        size_t row = 0;
        for (size_t e = 0; e < 4; ++e) {
            const auto count = static_cast<size_t>(c.counts[e]);
            if (count == 0) continue;
            std::vector<Bf16> transposed(2 * kIntermediate * kDepth);
            for (size_t k = 0; k < kDepth; ++k) {
                for (size_t n = 0; n < 2 * kIntermediate; ++n) {
                    transposed[n * kDepth + k] =
                        c.weight.as<Bf16>()[(e * kDepth + k) * 2 * kIntermediate + n];
                }
            }
            const auto both = make_rows<const Bf16>(transposed.data(), 2 * kIntermediate, kDepth);
            const PackedLinear packed =
                PackedLinear::pack_gate_up(both.slice(0, kIntermediate),
                                           both.slice(kIntermediate, kIntermediate),
                                           numeric_class);
            std::vector<Bf16> h(count * kIntermediate);
            SerialParallel serial;
            swiglu(make_rows<const Bf16>(c.x.as<Bf16>() + row * kDepth, count, kDepth),
                   packed,
                   make_rows(h.data(), count, kIntermediate),
                   serial);
            EXPECT_TRUE(std::equal(h.begin(), h.end(), c.output.as<Bf16>() + row * kIntermediate))
                << e;
            row += count;
        }
    }
}

// Enough work that it is cut into tasks; a row with a NaN scale is visible, the others are not.
TEST(GroupedMatmulSwiglu, ManyTasksAndARowOfNan) {
    Case c(DType::kInt8, 7, 256, 200, 0, 1);
    c.x_scale.as<float>()[3] = std::nanf("");
    expect_reference_bits(c);
    ASSERT_TRUE(run_fast(c.request, 3).ok());
    EXPECT_TRUE(std::isnan(c.output_scale.as<float>()[3]));
    EXPECT_EQ(c.output.as<int8_t>()[3 * 200], 0);
    EXPECT_FALSE(std::isnan(c.output_scale.as<float>()[2]));
}

TEST(GroupedMatmulSwiglu, NoRowsAndOneExpertTakesAll) {
    Case none(DType::kBf16, 3, 8, 4, 1, -1);
    none.group_list.set<int64_t>({0, 0, 0});
    none.request.numeric_class = NumericClass::kPortable;
    expect_reference_bits(none);
    Case one(DType::kBf16, 3, 8, 4, 1, -1);
    one.group_list.set<int64_t>({0, static_cast<int64_t>(one.x.view.shape[0]), 0});
    one.request.numeric_class = NumericClass::kPortable;
    expect_reference_bits(one);
}

TEST(GroupedMatmulSwiglu, RefusesWhatDoesNotFitWithAMessage) {
    const auto message = [](Case& c, auto&& change) {
        Request request = c.request;
        const auto before = c.output.bytes;
        change(request);
        const Result<> result = run_fast(request, 1);
        EXPECT_FALSE(reference::grouped_matmul_swiglu(request).ok());
        EXPECT_EQ(c.output.bytes, before);
        return result.ok() ? "accepted" : result.error().message;
    };
    const auto nothing = [](Request&) {};
    Case c(DType::kBf16, 3, 8, 4, 0, -1);  // Counts 1, 0, 6; two rows of none.
    EXPECT_EQ(message(c, [](Request& r) { r.group_list_type = 3; }),
              "grouped_matmul_swiglu: group_list_type is 3; allowed are 0, 1, 2");
    EXPECT_EQ(message(c, [](Request& r) { r.quant_mode = 0; }),
              "grouped_matmul_swiglu: quant_mode is 0; allowed are -1, 1");
    EXPECT_EQ(message(c, [](Request& r) { r.group_list_type = 2; }),
              "grouped_matmul_swiglu: group_list must be [?, 2] with group_list_type 2");
    Tensor scale(DType::kFp32, {9});
    EXPECT_EQ(message(c, [&](Request& r) { r.x_scale = scale.view; }),
              "grouped_matmul_swiglu: x has dtype bf16; x_scale is for int8 only");
    Tensor column_scale(DType::kFp32, {3, 8});
    EXPECT_EQ(message(c, [&](Request& r) { r.weight_scale = column_scale.view; }),
              "grouped_matmul_swiglu: x has dtype bf16; weight_scale is for int8 only");
    EXPECT_EQ(message(c, [](Request& r) { r.quant_mode = 1; }),
              "grouped_matmul_swiglu: output has dtype bf16; it must be int8 with quant_mode 1");
    Tensor odd(DType::kBf16, {3, 8, 7});
    EXPECT_EQ(message(c, [&](Request& r) { r.weight = odd.view; }),
              "grouped_matmul_swiglu: weight has shape [3, 8, 7]; it must be [E, H, 2*I] with "
              "E = 3 (weight), H = 8 (x), I = 4 (output)");
    c.group_list.set<int64_t>({1, 0, 7});
    EXPECT_EQ(message(c, nothing),
              "grouped_matmul_swiglu: group_list[1] gives a count of -1; allowed are 0 to 8, the "
              "rows of x that are left");
    c.group_list.set<int64_t>({1, 1, 10});
    EXPECT_EQ(message(c, nothing),
              "grouped_matmul_swiglu: group_list[2] gives a count of 9; allowed are 0 to 8, the "
              "rows of x that are left");
    Case pairs(DType::kInt8, 3, 8, 4, 2, 1);
    pairs.group_list.set<int64_t>({2, 1, 0, 1});
    EXPECT_EQ(message(pairs, nothing),
              "grouped_matmul_swiglu: group_list[1] names expert 0; experts must ascend, and the "
              "one before is 2");
    pairs.group_list.set<int64_t>({1, 1, 1, 1});
    EXPECT_EQ(message(pairs, nothing),
              "grouped_matmul_swiglu: group_list[1] names expert 1; experts must ascend, and the "
              "one before is 1");
    pairs.group_list.set<int64_t>({0, 1, 3, 1});
    EXPECT_EQ(message(pairs, nothing),
              "grouped_matmul_swiglu: group_list[1] names expert 3; allowed are 0 to 2");
    EXPECT_EQ(message(pairs, [](Request& r) { r.x_scale = {}; }),
              "grouped_matmul_swiglu: x has dtype int8; x_scale [M] is needed");
    EXPECT_EQ(message(pairs, [](Request& r) { r.weight_scale = {}; }),
              "grouped_matmul_swiglu: x has dtype int8; weight_scale [E, 2*I] is needed");
    EXPECT_EQ(message(pairs, [](Request& r) { r.output_scale = {}; }),
              "grouped_matmul_swiglu: output_scale is missing; quant_mode 1 needs [M]");
    Tensor bf16_weight(DType::kBf16, {3, 8, 8});
    EXPECT_EQ(message(pairs, [&](Request& r) { r.weight = bf16_weight.view; }),
              "grouped_matmul_swiglu: x has dtype int8; weight must have it too, not bf16");
    Case deep(DType::kInt8, 1, 131072, 1, 1, -1);
    EXPECT_EQ(message(deep, nothing),
              "grouped_matmul_swiglu: H is 131072; with int8 at most 131071 are allowed");
}

}  // namespace
}  // namespace afd::ops
