// SPDX-License-Identifier: Apache-2.0

// What holds for a call of any operator by name. What the operators compute is in tests/ops, what
// programs see of it in tests/tools and tests/python.

#include "calls/operator_call.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "calls/error_parameter.h"
#include "calls/name_list.h"
#include "calls/registry.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/tensor/workspace.h"
#include "tests/counted_allocations.h"

namespace afd::calls {
namespace {

using ops::DType;

struct Given {
    std::string name;
    DType dtype;
    std::vector<size_t> shape;
    std::vector<std::byte> bytes;

    Given(std::string is, DType type, std::vector<size_t> extents)
        : name(std::move(is)), dtype(type), shape(std::move(extents)) {
        size_t size = size_of(dtype);
        for (const size_t extent : shape) size *= extent;
        bytes.resize(size + 1);
    }
    NamedTensor tensor() {
        ops::TensorView view{.data = bytes.data(), .dtype = dtype, .rank = shape.size()};
        size_t stride = 1;
        for (size_t axis = shape.size(); axis-- > 0;) {
            view.shape[axis] = shape[axis];
            view.strides[axis] = stride;
            stride *= shape[axis];
        }
        return {name, view};
    }
};

Result<std::unique_ptr<OperatorCall>> call(std::string_view name,
                                           std::vector<Given>& given,
                                           const nlohmann::json& attributes,
                                           uint64_t memory_max = 0) {
    static ops::SerialParallel serial;
    std::vector<NamedTensor> tensors;
    for (Given& each : given) tensors.push_back(each.tensor());
    return OperatorCall::make(
        *find_operator(name), tensors, attributes, {.memory_max = memory_max, .parallel = &serial});
}

struct Example {
    const char* name;
    std::vector<Given> given;
    nlohmann::json attributes;
};

std::vector<Example> examples() {
    using D = DType;
    return {
        {"moe_init_routing_v3",
         {{"x", D::kFp32, {64, 16}}, {"expert_idx", D::kInt32, {64, 4}}},
         {{"expert_num", 8}, {"quant_mode", 1}, {"expert_tokens_num_flag", true}}},
        {"moe_gating_top_k",
         {{"x", D::kFp32, {64, 16}}, {"bias", D::kFp32, {16}}},
         {{"k", 4}, {"norm_type", 1}}},
        {"moe_finalize_routing",
         {{"expanded_x", D::kBf16, {64, 16}},
          {"expanded_row_idx", D::kInt32, {64}},
          {"scales", D::kFp32, {16, 4}}},
         nlohmann::json::object()},
        {"grouped_matmul_swiglu",
         {{"x", D::kBf16, {64, 16}},
          {"weight", D::kBf16, {2, 16, 64}},
          {"group_list", D::kInt64, {2}}},
         {{"group_list_type", 1}}},
    };
}

// Goal: the second step can run in a loop that must not allocate. Method: each call three times;
// the allocations of the last two are counted. Oracle: none.
TEST(OperatorCall, RunsWithoutAllocating) {
    for (Example& example : examples()) {
        SCOPED_TRACE(example.name);
        auto made = call(example.name, example.given, example.attributes);
        ASSERT_TRUE(made.ok()) << made.error().message;
        OperatorCall& ready = *made.value();
        std::vector<std::vector<std::byte>> outputs;
        std::vector<void*> memory;
        for (const NamedTensor& output : ready.outputs()) {
            outputs.emplace_back(output.view.num_elements() * size_of(output.view.dtype) + 1);
            memory.push_back(outputs.back().data());
        }
        const ops::Workspace workspace(ready.workspace_bytes());
        ASSERT_TRUE(ready.run(memory, workspace.bytes()).ok());
        const uint64_t before = test::num_allocations();
        for (int i = 0; i < 2; ++i) {
            const Result<> done = ready.run(memory, workspace.bytes());
            if (!done.ok()) FAIL() << done.error().message;
        }
        EXPECT_EQ(test::num_allocations(), before);
    }
}

TEST(OperatorCall, JudgesMemoryBeforeItIsAllocated) {
    Example example = examples()[0];
    const auto refused = call(example.name, example.given, example.attributes, 1000);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    const std::string& text = refused.error().message;
    EXPECT_NE(text.find("outputs and workspace need "), std::string::npos) << text;
    EXPECT_NE(text.find("expanded_x [256, 16] 4096, "), std::string::npos) << text;
    EXPECT_NE(text.find("; memory_max is 1000"), std::string::npos) << text;
}

// Goal: who asks for too much reads which parameter it was, in the text and as error_parameter().
// Method: one size of a call made huge, for each kind of part that it makes the largest: an output
// with its name in the shape, the workspace, an output whose shape is a rule ("[R]"), and none.
// Oracle: the parameter, its value and the limit.
TEST(OperatorCall, NamesTheParameterThatNeedsTheMemory) {
    struct Case {
        nlohmann::json attributes;
        const char* begins;
        const char* parameter;
    };
    const std::string name = "moe_init_routing_v3: ";
    const Case cases[] = {
        {{{"expert_num", INT32_MAX}}, "expert_num is 2147483647; ", "expert_num"},
        {{{"expert_num", INT32_MAX}, {"expert_tokens_num_flag", true}},
         "expert_num is 2147483647; ",
         "expert_num"},
        {{{"expert_num", INT32_MAX},
          {"expert_tokens_num_flag", true},
          {"expert_tokens_num_type", 2}},
         "expert_num is 2147483647; ",
         "expert_num"},
        {{{"expert_num", 4}, {"drop_pad_mode", 1}, {"expert_capacity", 1 << 28}},
         "expert_capacity is 268435456; ",
         "expert_capacity"},
        // Not looked at without drop_pad_mode.
        {{{"expert_num", INT32_MAX - 1}, {"expert_capacity", INT32_MAX}},
         "expert_num is 2147483646; ",
         "expert_num"},
    };
    for (const Case& wanted : cases) {
        Example example = examples()[0];
        const auto refused = call(example.name, example.given, wanted.attributes, 1 << 20);
        ASSERT_FALSE(refused.ok()) << wanted.attributes;
        EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
        const std::string& text = refused.error().message;
        EXPECT_TRUE(text.starts_with(name + wanted.begins + "outputs and workspace need ")) << text;
        EXPECT_TRUE(text.ends_with("; memory_max is 1048576")) << text;
        EXPECT_EQ(error_parameter(ops::kMoeInitRoutingV3Spec, text), wanted.parameter) << text;
    }
}

TEST(OperatorCall, NamesTheTensorThatNeedsTheMemory) {
    std::vector<Given> given = {{"x", DType::kFp32, {1000, 256}},
                                {"expert_idx", DType::kInt32, {1000, 4}}};
    const auto refused = call("moe_init_routing_v3", given, {{"expert_num", 4}}, 1000000);
    ASSERT_FALSE(refused.ok());
    const std::string& text = refused.error().message;
    EXPECT_TRUE(text.starts_with("moe_init_routing_v3: x has shape [1000, 256]; outputs and "))
        << text;
    EXPECT_EQ(error_parameter(ops::kMoeInitRoutingV3Spec, text), "x");
}

TEST(OperatorCall, RefusesTensorsThatNoOperatorCanRead) {
    const auto message = [](auto change) {
        Example example = examples()[0];
        change(example.given);
        const auto refused = call(example.name, example.given, example.attributes);
        return refused.ok() ? "accepted" : refused.error().message;
    };
    using G = std::vector<Given>&;
    const std::string name = "moe_init_routing_v3: ";
    EXPECT_EQ(message([](G given) { given[0].shape = {}; }),
              name + "x is a scalar; it must have the shape [N, H]");
    EXPECT_EQ(message([](G given) {
                  given[0].shape = {size_t{1} << 62, 0, 16};
              }),
              name + "x has shape [4611686018427387904, 0, 16]; no memory is as large");
    EXPECT_EQ(message([](G given) { given.push_back(given[0]); }), name + "x is given twice");
    EXPECT_EQ(message([](G given) { given[1].name = "expert_ids"; }),
              name +
                  "there is no input tensor expert_ids; there are x, expert_idx, scale, offset; "
                  "did you mean expert_idx?");
    EXPECT_EQ(message([](G given) {
                  given.emplace_back("expanded_x", DType::kFp32, std::vector<size_t>{1});
              }),
              name + "there is no input tensor expanded_x; there are x, expert_idx, scale, offset");
}

TEST(ErrorParameter, IsTheNameThatTheRecordHas) {
    const ops::OperatorSpec& spec = ops::kMoeInitRoutingV3Spec;
    EXPECT_EQ(error_parameter(spec, "moe_init_routing_v3: quant_mode is 5; allowed are -1, 0, 1"),
              "quant_mode");
    EXPECT_EQ(error_parameter(spec, "moe_init_routing_v3: x is missing; it must be [N, H]"), "x");
    EXPECT_EQ(error_parameter(spec, "there is no attribute expert_nmu; there are active_num"),
              "expert_nmu");
    EXPECT_EQ(error_parameter(*find_operator("ffn_worker_batching")->spec,
                              "ffn_worker_batching: session_num is 0; allowed are 1 ... 1024"),
              "session_num");
    EXPECT_EQ(error_parameter(spec, "out of memory"), "");
}

TEST(EditDistance, CountsLetters) {
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
    EXPECT_EQ(edit_distance("quant_mode", "quant_mode"), 0u);
}

}  // namespace
}  // namespace afd::calls
