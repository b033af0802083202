// SPDX-License-Identifier: Apache-2.0
//
// What moe_init_routing_v3 refuses, and in which words. Method: a valid request, one thing wrong,
// the whole message, from both implementations; nothing is written.

#include <gtest/gtest.h>

#include "tests/ops/operators/moe_init_routing_case.h"

namespace afd::ops {
namespace {

using Case = test::InitRoutingCase;
using Outputs = test::InitRoutingOutputs;
using test::run_fast;
using test::Tensor;

class MoeInitRoutingV3Refuses : public testing::Test {
  protected:
    // The error of both paths; outputs have the shapes of the request before `change`.
    template <typename Change>
    std::string message(Case& c, const Change& change) {
        MoeInitRoutingV3Request request = c.inputs();
        Outputs outputs(with_output_shapes(request).value());
        outputs.put_into(request);
        const auto before = outputs.expanded_x.bytes;
        change(request);
        const Result<> fast = run_fast(request, 1);
        const Result<> plain = reference::moe_init_routing_v3(request);
        EXPECT_FALSE(plain.ok());
        if (fast.ok() || plain.ok()) return "accepted";
        EXPECT_EQ(fast.error().code, Code::kInvalidArgument);
        EXPECT_EQ(fast.error().message, plain.error().message);
        EXPECT_EQ(outputs.expanded_x.bytes, before);
        return fast.error().message;
    }
    template <typename Change>
    std::string message(const Change& change) {
        return message(case_, change);
    }

    using Request = MoeInitRoutingV3Request;
    Case case_{DType::kBf16, 3, 2, 5, 4};
};

TEST_F(MoeInitRoutingV3Refuses, AttributesOutOfRange) {
    EXPECT_EQ(message([](Request& r) { r.drop_pad_mode = 2; }),
              "moe_init_routing_v3: drop_pad_mode is 2; allowed are 0, 1");
    EXPECT_EQ(message([](Request& r) { r.expert_tokens_num_type = 3; }),
              "moe_init_routing_v3: expert_tokens_num_type is 3; allowed are 0, 1, 2");
    EXPECT_EQ(message([](Request& r) { r.quant_mode = 2; }),
              "moe_init_routing_v3: quant_mode is 2; allowed are -1, 0, 1");
    EXPECT_EQ(message([](Request& r) { r.row_idx_type = -1; }),
              "moe_init_routing_v3: row_idx_type is -1; allowed are 0, 1");
    EXPECT_EQ(message([](Request& r) { r.expert_num = -1; }),
              "moe_init_routing_v3: expert_num is -1; allowed are 0 to 2147483647");
}

TEST_F(MoeInitRoutingV3Refuses, ARangeThatIsNoneAndExpertsBeyondExpertNum) {
    const std::vector<int64_t> ranges[] = {{1}, {-1, 2}, {3, 2}, {0, 5}};
    const std::string texts[] = {"[1]; it must have 2 elements, or none for all experts",
                                 "[-1, 2]; allowed are 0 <= start <= end <= expert_num, which is 4",
                                 "[3, 2]; allowed are 0 <= start <= end <= expert_num, which is 4",
                                 "[0, 5]; allowed are 0 <= start <= end <= expert_num, which is 4"};
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(message([&](Request& r) { r.active_expert_range = ranges[i]; }),
                  "moe_init_routing_v3: active_expert_range is " + texts[i]);
    }
    case_.expert_idx.as<int32_t>()[3] = 4;
    EXPECT_EQ(message([](Request&) {}),
              "moe_init_routing_v3: expert_idx[3] is 4; it must be below expert_num, 4");
}

TEST_F(MoeInitRoutingV3Refuses, DropPadWithoutCapacityWithARangeOrScatterIndices) {
    case_.request.drop_pad_mode = 1;
    case_.request.expert_capacity = 2;
    EXPECT_EQ(message([](Request& r) { r.expert_capacity = 0; }),
              "moe_init_routing_v3: expert_capacity is 0; drop_pad_mode 1 needs at least 1");
    EXPECT_EQ(message([](Request& r) { r.expert_capacity = INT32_MAX; }),
              "moe_init_routing_v3: expert_capacity is 2147483647; expert_num times it must not "
              "exceed 2147483647");
    EXPECT_EQ(message([](Request& r) { r.row_idx_type = 1; }),
              "moe_init_routing_v3: drop_pad_mode is 1; row_idx_type must be 0");
    const std::vector<int64_t> range{1, 4};
    EXPECT_EQ(message([&](Request& r) { r.active_expert_range = range; }),
              "moe_init_routing_v3: drop_pad_mode is 1; active_expert_range must be [] or [0, 4]");
    EXPECT_EQ(message([](Request& r) { r.expanded_x = {}; }),
              "moe_init_routing_v3: expanded_x is missing; it must be "
              "[P, H] | [expert_num, expert_capacity, H]");
}

TEST_F(MoeInitRoutingV3Refuses, ScalesAndOffsetsThatTheModeDoesNotTake) {
    Tensor one(DType::kFp32, {1});
    Tensor two(DType::kFp32, {2});
    Tensor smooth(DType::kFp32, {4, 5});
    EXPECT_EQ(message([&](Request& r) { r.offset = one.view; }),
              "moe_init_routing_v3: quant_mode is -1; only quant_mode 0 takes an offset");
    EXPECT_EQ(message([&](Request& r) { r.scale = smooth.view; }),
              "moe_init_routing_v3: quant_mode is -1; scale must be [N] with N = 3");
    case_.with_scale({3});
    EXPECT_EQ(message([&](Request& r) { r.expanded_scale = {}; }),
              "moe_init_routing_v3: expanded_scale is missing; it must be [P] with P = 6");
    Case fixed(DType::kBf16, 3, 2, 5, 4);
    fixed.with_scale({1}).with_offset();
    fixed.request.quant_mode = 0;
    EXPECT_EQ(message(fixed, [](Request& r) { r.scale = {}; }),
              "moe_init_routing_v3: quant_mode is 0; scale [1] is needed");
    EXPECT_EQ(message(fixed, [](Request& r) { r.offset = {}; }),
              "moe_init_routing_v3: quant_mode is 0; offset [1] is needed");
    EXPECT_EQ(message(fixed, [&](Request& r) { r.scale = two.view; }),
              "moe_init_routing_v3: quant_mode is 0; scale must be [1]");
    EXPECT_EQ(message(fixed, [&](Request& r) { r.offset = two.view; }),
              "moe_init_routing_v3: offset has shape [2]; it must be [1]");
    Case dynamic(DType::kBf16, 3, 2, 5, 4);
    dynamic.request.quant_mode = 1;
    EXPECT_EQ(message(dynamic, [&](Request& r) { r.scale = one.view; }),
              "moe_init_routing_v3: quant_mode is 1; scale must be [R, H] or [1, H]");
    Tensor narrow(DType::kFp32, {4, 4});
    EXPECT_EQ(message(dynamic, [&](Request& r) { r.scale = narrow.view; }),
              "moe_init_routing_v3: scale has shape [4, 4]; it must be [N] | [1] | [R, H] | "
              "[1, H] with N = 3 (x), R = 4, H = 5 (x)");
    EXPECT_EQ(message(dynamic, [](Request& r) { r.expanded_scale = {}; }),
              "moe_init_routing_v3: expanded_scale is missing; it must be [P] with P = 6");
}

TEST_F(MoeInitRoutingV3Refuses, DtypesAndOutputsThatDoNotFit) {
    Tensor int8_rows(DType::kInt8, {3, 5});
    Tensor int32_rows(DType::kInt32, {3, 5});
    EXPECT_EQ(message([&](Request& r) { r.x = int32_rows.view; }),
              "moe_init_routing_v3: x has dtype int32; allowed are bf16, fp16, fp32, int8");
    EXPECT_EQ(message([&](Request& r) { r.x = int8_rows.view; }),
              "moe_init_routing_v3: expanded_x has dtype bf16; it must be int8 with quant_mode -1");
    Case dynamic(DType::kBf16, 3, 2, 5, 4);
    dynamic.request.quant_mode = 1;
    EXPECT_EQ(message(dynamic, [&](Request& r) { r.x = int8_rows.view; }),
              "moe_init_routing_v3: quant_mode is 1; x of dtype int8 cannot be quantised");
    EXPECT_EQ(message([](Request& r) { r.active_num = 4; }),
              "moe_init_routing_v3: expanded_x has shape [6, 5]; it must be [P, H] | "
              "[expert_num, expert_capacity, H] with P = 4, H = 5 (x), expert_num = 4, "
              "expert_capacity = 0");
    EXPECT_EQ(message([](Request& r) { r.expert_tokens_count_or_cumsum = {}; }),
              "moe_init_routing_v3: expert_tokens_num_flag is true; "
              "expert_tokens_count_or_cumsum is missing");
    EXPECT_EQ(message([](Request& r) { r.expert_tokens_num_type = 2; }),
              "moe_init_routing_v3: expert_tokens_count_or_cumsum must be [expert_num, 2] with "
              "expert_tokens_num_type 2");
    Tensor short_idx(DType::kInt32, {5});
    EXPECT_EQ(message([&](Request& r) { r.expanded_row_idx = short_idx.view; }),
              "moe_init_routing_v3: expanded_row_idx has shape [5]; it must be [N*K] with N = 3 "
              "(x), K = 2 (expert_idx)");
}

}  // namespace
}  // namespace afd::ops
