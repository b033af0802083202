// SPDX-License-Identifier: Apache-2.0
#include "ops/record/operator_check.h"

#include <gtest/gtest.h>

namespace afd::ops {
namespace {

constexpr int64_t kModes[] = {0, 2};
constexpr AttributeSpec kAttributes[] = {
    {"mode", AttributeKind::kInt, "0", kModes, 0, 0, "0 nothing; 2 something"},
    {"K", AttributeKind::kInt, "", {}, 1, 64, "picks of a token"},
};
constexpr TensorSpec kTensors[] = {
    {"x", TensorRole::kInput, {DType::kBf16, DType::kFp32}, "[N, H] | [B, S, H]", "rows"},
    {"ids", TensorRole::kInput, {DType::kInt32}, "[N, K]", "picks"},
    {"scale", TensorRole::kOptionalInput, {DType::kFp32}, "[N]", "of the rows"},
    {"y", TensorRole::kOutput, {DType::kBf16}, "[N*K, H+1]", "result"},
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

}  // namespace
}  // namespace afd::ops
