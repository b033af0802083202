// SPDX-License-Identifier: Apache-2.0
#include "ops/record/operator_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace afd::ops {
namespace {

constexpr int64_t kModes[] = {0, 2};
constexpr AttributeSpec kAttributes[] = {
    {"mode", unbound(MemberType::kInt), "0", kModes, 0, 0, "0 nothing; 2 something"},
    {"K", unbound(MemberType::kInt), "", {}, 1, 64, "picks of a token"},
};
constexpr TensorSpec kTensors[] = {
    {"x",
     unbound(MemberType::kInput),
     TensorRole::kInput,
     {DType::kBf16, DType::kFp32},
     "[N, H] | [B, S, H]",
     "rows"},
    {"ids", unbound(MemberType::kInput), TensorRole::kInput, {DType::kInt32}, "[N, K]", "picks"},
    {"scale",
     unbound(MemberType::kInput),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[N]",
     "of the rows"},
    {"y", unbound(MemberType::kInput), TensorRole::kOutput, {DType::kBf16}, "[N*K, H+1]", "result"},
};
constexpr OperatorSpec kSpec = {
    "sample", "a sample", "y = x", "nowhere", kAttributes, kTensors, {}, {}};

class OperatorCheckTest : public testing::Test {
  protected:
    // A valid request apart from what the arguments change.
    Result<> judge(int64_t mode,
                   int64_t k,
                   const ConstTensorView& x,
                   const ConstTensorView& ids,
                   const ConstTensorView& y,
                   const ConstTensorView& scale = {}) {
        check_.emplace(kSpec);
        check_->attribute("mode", mode);
        check_->attribute("K", k);
        check_->tensor("x", x);
        check_->tensor("ids", ids);
        check_->tensor("scale", scale);
        check_->tensor("y", y);
        return check_->finish();
    }
    std::string message(const Result<>& result) {
        return result.ok() ? "accepted" : result.error().message;
    }
    static ConstTensorView tensor(DType dtype, std::initializer_list<size_t> shape) {
        static const char memory = 0;
        return make_tensor<const void>(&memory, dtype, shape);
    }

    const ConstTensorView x_ = tensor(DType::kBf16, {3, 8});
    const ConstTensorView ids_ = tensor(DType::kInt32, {3, 4});
    const ConstTensorView y_ = tensor(DType::kBf16, {12, 9});
    std::optional<OperatorCheck> check_;
};

TEST_F(OperatorCheckTest, BindsNamesFromWhereTheyAreUnambiguous) {
    ASSERT_EQ(message(judge(0, 4, x_, ids_, y_)), "accepted");
    EXPECT_EQ(check_->size("N"), 3U);
    EXPECT_EQ(check_->size("H"), 8U);
    EXPECT_EQ(message(judge(2, 4, x_, ids_, y_, tensor(DType::kFp32, {3}))), "accepted");
}

TEST_F(OperatorCheckTest, TakesAnyOfSeveralForms) {
    const auto split = tensor(DType::kBf16, {1, 3, 8});
    EXPECT_EQ(message(judge(0, 4, split, ids_, y_)), "accepted");
}

TEST_F(OperatorCheckTest, NoTokensAreFine) {
    EXPECT_EQ(message(judge(0,
                            4,
                            tensor(DType::kBf16, {0, 8}),
                            tensor(DType::kInt32, {0, 4}),
                            tensor(DType::kBf16, {0, 9}))),
              "accepted");
}

TEST_F(OperatorCheckTest, NamesTheAttributeItsValueAndWhatIsAllowed) {
    EXPECT_EQ(message(judge(1, 4, x_, ids_, y_)), "sample: mode is 1; allowed are 0, 2");
    EXPECT_EQ(message(judge(0, 65, x_, ids_, y_)), "sample: K is 65; allowed are 1 to 64");
}

TEST_F(OperatorCheckTest, NamesTheTensorItsDtypeOrItsAbsence) {
    EXPECT_EQ(message(judge(0, 4, tensor(DType::kInt8, {3, 8}), ids_, y_)),
              "sample: x has dtype int8; allowed are bf16, fp32");
    EXPECT_EQ(message(judge(0, 4, x_, {}, y_)), "sample: ids is missing; it must be [N, K]");
}

TEST_F(OperatorCheckTest, NamesTheShapeAndWhereItsSizesComeFrom) {
    EXPECT_EQ(message(judge(0, 5, x_, ids_, y_)),
              "sample: ids has shape [3, 4]; it must be [N, K] with N = 3 (ids), K = 5");
    EXPECT_EQ(message(judge(0, 4, x_, ids_, tensor(DType::kBf16, {12, 8}))),
              "sample: y has shape [12, 8]; it must be [N*K, H+1] with N = 3 (ids), K = 4, "
              "H = 8 (x)");
    EXPECT_EQ(message(judge(0, 4, tensor(DType::kBf16, {24}), ids_, y_)),
              "sample: x has shape [24]; it must be [N, H] | [B, S, H]");
}

TEST_F(OperatorCheckTest, RefusesStridedTensors) {
    ConstTensorView strided = x_;
    strided.strides[0] = 16;
    EXPECT_EQ(message(judge(0, 4, strided, ids_, y_)),
              "sample: x is not contiguous; copy it first");
}

// A request that a record binds, with a part that is inherited.
struct Common {
    int64_t k = 1;
};
struct Bound : Common {
    bool is_on = false;
    float factor = 1.0f;
    std::string_view mode = "plain";
    ConstTensorView x;
    std::span<const std::byte> window;
    TensorView y;
};

constexpr std::string_view kModeWords[] = {"plain", "other"};
constexpr AttributeSpec kBoundAttributes[] = {
    {"k", bind<Bound, &Bound::k>(), "", {}, 1, 4, "picks"},
    {"is_on", bind<&Bound::is_on>(), "false", {}, 0, 1, "whether"},
    {"factor", bind<&Bound::factor>(), "1.0", {}, 0, 0, "of x"},
    {"mode", bind<&Bound::mode>(), "\"plain\"", {}, 0, 0, "how", kModeWords},
};
constexpr TensorSpec kBoundTensors[] = {
    {"x", bind<&Bound::x>(), TensorRole::kInput, {DType::kFp32}, "[N]", "values"},
    {"window", bind<&Bound::window>(), TensorRole::kInput, {DType::kUint8}, "[2*N]", "bytes"},
    {"y", bind<&Bound::y>(), TensorRole::kOutput, {DType::kFp32}, "[N, k]", "values"},
};
constexpr RecordOf<Bound> kBoundSpec = {
    {"bound", "a sample", "y = x", "nowhere", kBoundAttributes, kBoundTensors, {}, {}}};

// Goal: a check reads every bound member, inherited ones too. Method: a valid request, and one
// member after the other made wrong. Oracle: the message names it with its value.
TEST(BoundRecord, EveryMemberIsRead) {
    float values[8] = {};
    std::byte bytes[4] = {};
    const auto judge = [&](auto change) {
        Bound r;
        r.k = 4;
        r.x = make_tensor<const void>(values, DType::kFp32, {2});
        r.window = bytes;
        r.y = make_tensor<void>(values, DType::kFp32, {2, 4});
        change(r);
        OperatorCheck check(kBoundSpec, r);
        check.attributes();
        check.tensors();
        const Result<> result = check.finish();
        return result.ok() ? std::string("ok") : result.error().message;
    };
    EXPECT_EQ(judge([](Bound&) {}), "ok");
    EXPECT_EQ(judge([](Bound& r) { r.k = 5; }), "bound: k is 5; allowed are 1 to 4");
    EXPECT_EQ(judge([](Bound& r) { r.factor = std::nanf(""); }), "bound: factor is not a number");
    EXPECT_EQ(judge([](Bound& r) { r.mode = "odd"; }),
              "bound: mode is \"odd\"; allowed are plain, other");
    EXPECT_EQ(judge([](Bound& r) { r.x = {}; }), "bound: x is missing; it must be [N]");
    EXPECT_EQ(judge([](Bound& r) { r.window = r.window.first(3); }),
              "bound: window has shape [3]; it must be [2*N] with N = 2 (x)");
    EXPECT_EQ(judge([](Bound& r) { r.y.shape[1] = r.y.strides[0] = 3; }),
              "bound: y has shape [2, 3]; it must be [N, k] with N = 2 (x), k = 4");
}

TEST(BoundRecord, WhatIsLeftOutIsNotRead) {
    Bound r;
    r.k = 99;
    OperatorCheck check(kBoundSpec, r);
    for (const char* name : {"k", "x", "window", "y"}) check.leave_out(name);
    check.attributes();
    check.tensors();
    EXPECT_TRUE(check.finish().ok());
}

}  // namespace
}  // namespace afd::ops
