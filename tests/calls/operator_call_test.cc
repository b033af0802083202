// SPDX-License-Identifier: Apache-2.0

// What holds for a call of any operator by name. What the operators compute is in tests/ops, what
// programs see of it in tests/tools and tests/python.

#include "calls/operator_call.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "calls/error_parameter.h"
#include "calls/name_list.h"
#include "calls/registry.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/tensor/workspace.h"
#include "tests/counted_allocations.h"
#include "tests/fuzz/operator_input.h"

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

Example routing_example() {
    using D = DType;
    return {"moe_init_routing_v3",
            {{"x", D::kFp32, {64, 16}}, {"expert_idx", D::kInt32, {64, 4}}},
            {{"expert_num", 8}, {"quant_mode", 1}, {"expert_tokens_num_flag", true}}};
}

// Runs twice more what has run once. Nothing: the operator refuses to, since what is in place has
// changed.
std::optional<uint64_t> allocations_of_reruns(OperatorCall& call,
                                              std::span<void* const> memory,
                                              std::span<std::byte> workspace) {
    const uint64_t before = test::num_allocations();
    const bool is_done = call.run(memory, workspace).ok() && call.run(memory, workspace).ok();
    const uint64_t after = test::num_allocations();
    return is_done ? std::optional(after - before) : std::nullopt;
}

// Goal: the second step can run in a loop that must not allocate, whatever the operator. Method:
// the right calls among the fuzzers' seeds, each three times; the allocations of the last two are
// counted. Oracle: none.
class OperatorCallRuns : public testing::TestWithParam<const RegisteredOperator*> {};

TEST_P(OperatorCallRuns, WithoutAllocating) {
    const ops::OperatorSpec& spec = *GetParam()->spec;
    const std::string folder = AFD_FUZZ_CORPUS "/operator_" + std::string(spec.name);
    size_t num_calls = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        SCOPED_TRACE(file.path());
        std::ifstream stream(file.path(), std::ios::binary);
        const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(stream)), {});
        const fuzz::OperatorInput given(spec, {bytes.data(), bytes.size()});
        ops::SerialParallel serial;
        auto made =
            OperatorCall::make(*GetParam(), given.tensors, given.attributes, {.parallel = &serial});
        if (!made.ok()) continue;
        OperatorCall& ready = *made.value();
        std::vector<fuzz::ExactBytes> outputs;
        std::vector<void*> memory;
        for (const NamedTensor& output : ready.outputs()) {
            const size_t size = output.view.num_elements() * size_of(output.view.dtype);
            memory.push_back(outputs.emplace_back(size, 64).span().data());
        }
        const ops::Workspace workspace(ready.workspace_bytes());
        if (!ready.run(memory, workspace.bytes()).ok()) continue;
        const auto allocations = allocations_of_reruns(ready, memory, workspace.bytes());
        if (!allocations) continue;
        EXPECT_EQ(*allocations, 0U);
        ++num_calls;
    }
    EXPECT_GT(num_calls, 0U);
}

std::vector<const RegisteredOperator*> all_operators() {
    std::vector<const RegisteredOperator*> all;
    for (const RegisteredOperator& each : operators()) all.push_back(&each);
    return all;
}

INSTANTIATE_TEST_SUITE_P(All,
                         OperatorCallRuns,
                         testing::ValuesIn(all_operators()),
                         [](const auto& entry) { return std::string(entry.param->spec->name); });

TEST(OperatorCall, JudgesMemoryBeforeItIsAllocated) {
    Example example = routing_example();
    const auto refused = call(example.name, example.given, example.attributes, 1000);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    const std::string& text = refused.error().message;
    EXPECT_NE(text.find("outputs and workspace need "), std::string::npos) << text;
    EXPECT_NE(text.find("expanded_x [256, 16] 4096, "), std::string::npos) << text;
    EXPECT_NE(text.find("; memory_max is 1000"), std::string::npos) << text;
}

// Goal: memory of outputs that the caller has already is not counted once more. Oracle: the limit,
// below one output and above all the rest; what the message still counts.
TEST(OperatorCall, CountsNoOutputWhoseMemoryIsThere) {
    Example example = routing_example();
    static ops::SerialParallel serial;
    const auto refusal = [&](uint64_t memory_max, std::vector<std::string> outputs_given) {
        std::vector<NamedTensor> tensors;
        for (Given& each : example.given) tensors.push_back(each.tensor());
        const auto made = OperatorCall::make(*find_operator(example.name),
                                             tensors,
                                             example.attributes,
                                             {.memory_max = memory_max,
                                              .outputs_given = std::move(outputs_given),
                                              .parallel = &serial});
        return made.ok() ? "" : made.error().message;
    };
    const std::string all = refusal(1, {});
    EXPECT_NE(all.find("expanded_x [256, 16] 4096, "), std::string::npos) << all;
    const std::string rest = refusal(1, {"expanded_x"});
    EXPECT_EQ(rest.find("expanded_x"), std::string::npos) << rest;
    const auto total_of = [](const std::string& text) {
        const size_t at = text.find(" need ");
        return at == std::string::npos ? 0 : std::stoull(text.substr(at + 6));
    };
    EXPECT_EQ(total_of(all), total_of(rest) + 4096);
    EXPECT_EQ(refusal(total_of(rest), {"expanded_x"}), "");
    EXPECT_NE(refusal(total_of(rest), {}), "");
    EXPECT_NE(refusal(0, {"expanded_xs"}).find("there is no output expanded_xs; there are "),
              std::string::npos);
}

// Goal: no number becomes infinite on its way into a request. Oracle: the largest of fp32.
TEST(OperatorCall, RefusesNumbersThatFp32DoesNotHold) {
    const auto refusal = [](double factor) {
        std::vector<Given> given = {{"x", DType::kFp32, {4, 8}}};
        const auto made =
            call("moe_gating_top_k", given, {{"k", 2}, {"routed_scaling_factor", factor}});
        return made.ok() ? "" : made.error().message;
    };
    EXPECT_EQ(refusal(3.4e38), "");
    EXPECT_EQ(refusal(3.4028235e38), "") << "the shortest text of the largest";
    EXPECT_EQ(refusal(-3.4e38), "");
    EXPECT_EQ(refusal(1e39),
              "moe_gating_top_k: routed_scaling_factor is 1e+39; it must be a number of at most "
              "3.4028e38 in magnitude, which fp32 holds");
    EXPECT_NE(refusal(-1e39).find("routed_scaling_factor is -1e+39; "), std::string::npos);
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
        Example example = routing_example();
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
        Example example = routing_example();
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
              name + "expanded_x is an output; inputs are x, expert_idx, scale, offset");
}

// Goal: the first step judges what takes no values. Method: right calls of the phases that know
// their shapes in advance; one tensor is left out, or another dtype. Oracle: the message.
TEST(OperatorCall, JudgesTensorsOfTheTwoPhasesBeforeTheRun) {
    using D = DType;
    const Example examples[] = {
        {"two_phase_layout",
         {{"expert_ids", D::kInt32, {4, 2}}, {"expert_rank_table", D::kInt32, {1, 3, 1, 2}}},
         {{"num_ranks", 2}, {"num_local_experts", 2}}},
        {"two_phase_payload",
         {{"x", D::kFp32, {4, 8}},
          {"expert_ids", D::kInt32, {4, 2}},
          {"expert_rank_table", D::kInt32, {1, 3, 1, 2}},
          {"sorted_indices", D::kInt32, {8}},
          {"send_counts", D::kInt32, {2, 2}},
          {"base", D::kInt64, {2, 2}},
          {"recv_x", D::kFp32, {8, 8}}},
         {{"num_ranks", 2}, {"num_local_experts", 2}}}};
    for (const Example& example : examples) {
        const auto message = [&](size_t changed, bool is_there) {
            std::vector<Given> given = example.given;
            Given& one = given[changed];
            if (is_there) {
                one = Given(one.name, D::kBool, one.shape);
            } else {
                given.erase(given.begin() + static_cast<ptrdiff_t>(changed));
            }
            const auto made = call(example.name, given, example.attributes);
            return made.ok() ? "accepted" : made.error().message;
        };
        std::vector<Given> right = example.given;
        const auto made = call(example.name, right, example.attributes);
        ASSERT_TRUE(made.ok()) << made.error().message;
        for (size_t i = 0; i < right.size(); ++i) {
            const std::string begin = std::string(example.name) + ": " + right[i].name;
            EXPECT_TRUE(message(i, false).starts_with(begin + " is missing; "))
                << message(i, false);
            EXPECT_TRUE(message(i, true).starts_with(begin + " has dtype bool; "))
                << message(i, true);
        }
    }
}

// Goal: no operator overwrites what it has yet to read. Method: outputs one behind the other, which
// touch and do not overlap; then one of them moved by its last or first byte into what is there.
// Oracle: the message; the bytes of the input.
TEST(OperatorCall, RefusesOutputsThatShareMemory) {
    Example example = routing_example();
    const auto made = call(example.name, example.given, example.attributes);
    ASSERT_TRUE(made.ok()) << made.error().message;
    OperatorCall& ready = *made.value();
    const ops::Workspace workspace(ready.workspace_bytes());
    const ops::Workspace block(1 << 16);
    std::vector<void*> apart;
    size_t begin = 0;
    for (const NamedTensor& output : ready.outputs()) {
        apart.push_back(&block.bytes()[begin]);
        begin += output.view.num_elements() * size_of(output.view.dtype);
    }
    const auto refusal = [&](size_t moved, void* to) {
        std::vector<void*> memory = apart;
        memory[moved] = to;
        const Result<> done = ready.run(memory, workspace.bytes());
        return done.ok() ? "" : done.error().message;
    };
    const std::string name = "moe_init_routing_v3: ";
    const std::string advice = "; give it memory of its own";
    ASSERT_EQ(ready.outputs()[1].name, "expanded_row_idx");
    EXPECT_EQ(refusal(0, apart[0]), "");
    EXPECT_EQ(refusal(1, static_cast<std::byte*>(apart[1]) - sizeof(int32_t)),
              name + "expanded_row_idx shares memory with expanded_x" + advice);

    std::vector<std::byte>& x = example.given[0].bytes;
    std::ranges::fill(x, std::byte{1});
    const std::vector<std::byte> before = x;
    EXPECT_EQ(refusal(0, x.data()), name + "expanded_x shares memory with x" + advice);
    EXPECT_EQ(refusal(0, &x[x.size() - 2]), name + "expanded_x shares memory with x" + advice);
    EXPECT_EQ(x, before);
    EXPECT_EQ(error_parameter(ready.spec(), refusal(0, x.data())), "expanded_x");
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
    EXPECT_EQ(error_parameter(spec, "moe_init_routing_v3: H is 9; allowed are 1 to 8"), "x");
    EXPECT_EQ(error_parameter(spec,
                              "moe_init_routing_v3: workspace begins at an address that is no "
                              "multiple of 64"),
              "workspace");
    const ops::OperatorSpec& gating = *find_operator("moe_gating_top_k")->spec;
    EXPECT_EQ(
        error_parameter(gating, "moe_gating_top_k: attribute k is missing; it has no default"),
        "k");
    EXPECT_EQ(error_parameter(gating, "moe_gating_top_k: k is 0; allowed are 1 to 2147483647"),
              "k");
    EXPECT_EQ(error_parameter(spec, "out of memory"), "");
}

TEST(Suggestion, IsTheNearestName) {
    const auto& attributes = ops::kMoeInitRoutingV3Spec.attributes;
    EXPECT_EQ(suggestion("expert_nmu", attributes), "; did you mean expert_num?");
    EXPECT_EQ(suggestion("bogus", attributes), "");
    EXPECT_EQ(suggestion(std::string(1000, 'x'), attributes), "");
}

}  // namespace
}  // namespace afd::calls
