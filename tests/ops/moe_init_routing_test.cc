// SPDX-License-Identifier: Apache-2.0

#include "ops/moe_init_routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "ops/reference/moe_init_routing.h"
#include "ops/workspace.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops {
namespace {

using test::Tensor;

using Function = Result<> (*)(const MoeInitRoutingV3Request&, unsigned num_threads);

Result<> run_fast(const MoeInitRoutingV3Request& request, unsigned num_threads) {
    const size_t top_k = request.expert_idx.rank == 2 ? request.expert_idx.shape[1] : 0;
    const size_t num_tokens = request.expert_idx.rank == 2 ? request.expert_idx.shape[0] : 0;
    const Workspace workspace(moe_init_routing_v3_workspace_bytes(
        num_tokens, top_k, static_cast<size_t>(std::max<int64_t>(request.expert_num, 0))));
    test::ThreadsParallel parallel(num_threads);
    return moe_init_routing_v3(request, workspace.bytes(), parallel);
}

Result<> run_reference(const MoeInitRoutingV3Request& request, unsigned) {
    return reference::moe_init_routing_v3(request);
}

// Inputs whose rows depend on their index, and attributes; outputs are made for each run.
struct Case {
    Tensor x;
    Tensor expert_idx;
    Tensor scale;
    Tensor offset;
    std::vector<int64_t> range;
    MoeInitRoutingV3Request request;

    Case(DType dtype, size_t num_tokens, size_t top_k, size_t hidden, int64_t num_experts)
        : x(dtype, {num_tokens, hidden}), expert_idx(DType::kInt32, {num_tokens, top_k}) {
        for (size_t i = 0; i < num_tokens * hidden; ++i) {
            const float value =
                std::sin(static_cast<float>(i % 8191)) + static_cast<float>(i / hidden);
            if (dtype == DType::kInt8) {
                x.as<int8_t>()[i] = static_cast<int8_t>(i * 7 + i / hidden);
            } else {
                reference::set_element(dtype, x.as<void>(), i, value);
            }
        }
        std::mt19937 engine(static_cast<uint32_t>(num_tokens * 31 + top_k));
        for (size_t f = 0; f < num_tokens * top_k; ++f) {
            expert_idx.as<int32_t>()[f] = static_cast<int32_t>(
                engine() % static_cast<uint32_t>(std::max<int64_t>(num_experts, 1)));
        }
        request.expert_num = num_experts;
        request.expert_tokens_num_flag = true;
    }

    Case& with_scale(std::initializer_list<size_t> shape) {
        scale = Tensor(DType::kFp32, shape);
        for (size_t i = 0; i < scale.view.num_elements(); ++i) {
            scale.as<float>()[i] = 0.5f + static_cast<float>(i % 97) / 64.0f;
        }
        return *this;
    }
    Case& with_range(int64_t start, int64_t end) {
        range = {start, end};
        return *this;
    }
    Case& with_offset() {
        offset = Tensor(DType::kFp32, {1});
        *offset.as<float>() = -3.25f;
        return *this;
    }

    // The request without outputs.
    MoeInitRoutingV3Request inputs() {
        request.x = x.view;
        request.expert_idx = expert_idx.view;
        request.scale = scale.view;
        request.offset = offset.view;
        request.active_expert_range = range;
        return request;
    }
};

struct Outputs {
    Tensor expanded_x;
    Tensor expanded_row_idx;
    Tensor counts;
    Tensor expanded_scale;

    explicit Outputs(const MoeInitRoutingV3Shapes& shapes)
        : expanded_x(shapes.expanded_x),
          expanded_row_idx(shapes.expanded_row_idx),
          counts(shapes.expert_tokens_count_or_cumsum),
          expanded_scale(shapes.expanded_scale) {}

    void put_into(MoeInitRoutingV3Request& request) {
        request.expanded_x = expanded_x.view;
        request.expanded_row_idx = expanded_row_idx.view;
        request.expert_tokens_count_or_cumsum = counts.view;
        request.expanded_scale = expanded_scale.view;
    }
};

Outputs run(Case& c, Function function, unsigned num_threads = 1) {
    MoeInitRoutingV3Request request = c.inputs();
    Result<MoeInitRoutingV3Shapes> shapes = moe_init_routing_v3_shapes(request);
    EXPECT_TRUE(shapes.ok()) << shapes.error().message;
    Outputs outputs(shapes.value());
    outputs.put_into(request);
    const Result<> result = function(request, num_threads);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return outputs;
}

void expect_same(Case& c, const std::string& what) {
    const Outputs want = run(c, run_reference);
    for (const unsigned num_threads : {1u, 3u}) {
        const Outputs got = run(c, run_fast, num_threads);
        EXPECT_EQ(got.expanded_x.bytes, want.expanded_x.bytes) << what;
        EXPECT_EQ(got.expanded_row_idx.bytes, want.expanded_row_idx.bytes) << what;
        EXPECT_EQ(got.counts.bytes, want.counts.bytes) << what;
        EXPECT_EQ(got.expanded_scale.bytes, want.expanded_scale.bytes) << what;
    }
}

std::string describe(const MoeInitRoutingV3Request& r) {
    return std::string(name_of(r.x.dtype)) + " N=" + std::to_string(r.x.shape[0]) +
           " K=" + std::to_string(r.expert_idx.shape[1]) + " E=" + std::to_string(r.expert_num) +
           " active_num=" + std::to_string(r.active_num) +
           " capacity=" + std::to_string(r.expert_capacity) +
           " type=" + std::to_string(r.expert_tokens_num_type) +
           " quant=" + std::to_string(r.quant_mode) + " idx=" + std::to_string(r.row_idx_type);
}

// Three tokens, two picks, by hand: the whole meaning of the indices in one example.
// Covers: moe_init_routing_v3 row_idx_type=0,1 quant_mode=-1 drop_pad_mode=0
TEST(MoeInitRoutingV3, SortsSlotsByExpertAndReportsThemBothWays) {
    Case c(DType::kFp32, 3, 2, 1, 4);
    const int32_t ids[] = {3, 1, 1, 0, 3, 3};
    std::copy_n(ids, 6, c.expert_idx.as<int32_t>());
    const float rows[] = {10, 20, 30};
    std::copy_n(rows, 3, c.x.as<float>());
    c.request.expert_tokens_num_type = 1;
    for (const Function function : {run_fast, run_reference}) {
        c.request.row_idx_type = 0;
        Outputs gather = run(c, function);
        EXPECT_EQ(gather.expanded_x.values<float>(), (std::vector<float>{20, 10, 20, 10, 30, 30}));
        EXPECT_EQ(gather.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{3, 1, 2, 0, 4, 5}));
        EXPECT_EQ(gather.counts.values<int64_t>(), (std::vector<int64_t>{1, 2, 0, 3}));
        c.request.row_idx_type = 1;
        Outputs scatter = run(c, function);
        EXPECT_EQ(scatter.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{3, 1, 2, 0, 4, 5}));
    }
}

// Covers: moe_init_routing_v3 expert_tokens_num_type=0,1,2 expert_tokens_num_flag=false,true
TEST(MoeInitRoutingV3, CountsAsPrefixSumsAsCountsOrAsPairs) {
    Case c(DType::kFp32, 3, 2, 1, 6);
    const int32_t ids[] = {4, 1, 1, 5, 4, 4};
    std::copy_n(ids, 6, c.expert_idx.as<int32_t>());
    c.with_range(1, 5);
    const std::vector<int64_t> want[] = {
        {2, 2, 2, 5}, {2, 0, 0, 3}, {1, 2, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0}};
    for (const Function function : {run_fast, run_reference}) {
        for (const int64_t type : {0, 1, 2}) {
            c.request.expert_tokens_num_flag = true;
            c.request.expert_tokens_num_type = type;
            EXPECT_EQ(run(c, function).counts.values<int64_t>(), want[type]) << type;
        }
        c.request.expert_tokens_num_flag = false;
        EXPECT_EQ(run(c, function).counts.view.rank, 0U);
    }
}

// Covers: moe_init_routing_v3 active_expert_range=subset,empty expert_idx=negative
TEST(MoeInitRoutingV3, ExpertsOutsideTheRangeHaveNoRowAndTheTailIsUntouched) {
    Case c(DType::kInt8, 2, 3, 4, 8);
    const int32_t ids[] = {7, 2, -1, 3, 0, 2};
    std::copy_n(ids, 6, c.expert_idx.as<int32_t>());
    c.with_range(2, 4);
    for (const Function function : {run_fast, run_reference}) {
        c.request.row_idx_type = 0;
        Outputs gather = run(c, function);
        EXPECT_EQ(gather.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{-1, 0, -1, 2, -1, 1}));
        EXPECT_EQ(gather.expanded_x.as<uint8_t>()[12], 0xa5);
        c.request.row_idx_type = 1;
        Outputs scatter = run(c, function);
        const std::vector<int32_t> row_idx = scatter.expanded_row_idx.values<int32_t>();
        EXPECT_EQ(std::vector<int32_t>(row_idx.begin(), row_idx.begin() + 3),
                  (std::vector<int32_t>{1, 5, 3}));
        EXPECT_EQ(row_idx[3], static_cast<int32_t>(0xa5a5a5a5));
    }
    c.with_range(5, 5);
    expect_same(c, "empty range");
}

// Covers: moe_init_routing_v3 drop_pad_mode=1 expert_capacity=2
TEST(MoeInitRoutingV3, DropPadKeepsTheFirstRowsOfAnExpertAndPadsWithZeros) {
    Case c(DType::kFp32, 4, 2, 1, 3);
    const int32_t ids[] = {2, 0, 0, 0, 2, -1, 0, 2};
    std::copy_n(ids, 8, c.expert_idx.as<int32_t>());
    const float rows[] = {10, 20, 30, 40};
    std::copy_n(rows, 4, c.x.as<float>());
    c.with_scale({4});
    c.request.drop_pad_mode = 1;
    c.request.expert_capacity = 2;
    c.request.active_num = 1;  // Ignored.
    c.request.expert_tokens_num_type = 1;
    for (const Function function : {run_fast, run_reference}) {
        Outputs out = run(c, function);
        EXPECT_EQ(out.expanded_x.values<float>(), (std::vector<float>{10, 20, 0, 0, 10, 30}));
        EXPECT_EQ(out.expanded_row_idx.values<int32_t>(),
                  (std::vector<int32_t>{4, 0, 1, -1, 5, -1, -1, -1}));
        EXPECT_EQ(out.counts.values<int64_t>(), (std::vector<int64_t>{4, 0, 3}));
        const float* scale = c.scale.as<float>();
        EXPECT_EQ(out.expanded_scale.values<float>(),
                  (std::vector<float>{scale[0], scale[1], 0, 0, scale[0], scale[2]}));
    }
}

// Goal: every legal combination of modes gives the reference's bytes, padding and untouched tails
// included. Method: sizes 0, 1, primes, K = E, more experts than slots; 1 and 3 threads.
// Oracle: the reference, which sorts with the standard library and writes row by row.
// Covers: moe_init_routing_v3 x=fp32,fp16,bf16,int8 quant_mode=-1,0,1 drop_pad_mode=0,1
// Covers: moe_init_routing_v3 expert_num=1,4,11,64
// Covers: moe_init_routing_v3 expert_tokens_num_type=0,1,2 row_idx_type=0,1
// Covers: moe_init_routing_v3 active_num=-1,0,positive active_expert_range=all,subset
// Covers: moe_init_routing_v3 scale=none,rows,smooth,smooth_shared offset=given,none
TEST(MoeInitRoutingV3, EveryCombinationOfModesMatchesTheReference) {
    struct Size {
        size_t num_tokens, top_k, hidden;
        int64_t num_experts;
    };
    const Size sizes[] = {
        {0, 3, 5, 4}, {1, 1, 1, 1}, {7, 4, 33, 4}, {13, 3, 17, 11}, {5, 2, 8, 64}};
    for (const DType dtype : {DType::kFp32, DType::kFp16, DType::kBf16, DType::kInt8}) {
        for (const Size& size : sizes) {
            for (const int64_t quant_mode : {-1, 0, 1}) {
                if (quant_mode != -1 && dtype == DType::kInt8) continue;
                for (const bool is_subset : {false, true}) {
                    for (const int variant : {0, 1, 2}) {
                        Case c(dtype, size.num_tokens, size.top_k, size.hidden, size.num_experts);
                        c.request.quant_mode = quant_mode;
                        c.request.expert_tokens_num_type = variant;
                        const int64_t start = is_subset ? size.num_experts / 3 : 0;
                        const int64_t end = is_subset ? size.num_experts - 1 : size.num_experts;
                        if (is_subset) c.with_range(start, std::max(start, end));
                        const auto num_active = static_cast<size_t>(std::max(start, end) - start);
                        if (quant_mode == 0) c.with_scale({1}).with_offset();
                        if (quant_mode == -1 && variant == 1) c.with_scale({size.num_tokens});
                        if (quant_mode == 1 && variant == 1) {
                            c.with_scale({num_active, size.hidden});
                        }
                        if (quant_mode == 1 && variant == 2) c.with_scale({1, size.hidden});
                        for (const int64_t row_idx_type : {0, 1}) {
                            c.request.row_idx_type = row_idx_type;
                            for (const int64_t active_num : {-1, 0, 1, 11}) {
                                c.request.active_num = active_num;
                                expect_same(c, describe(c.inputs()));
                            }
                        }
                        c.request.row_idx_type = 0;
                        c.request.drop_pad_mode = 1;
                        for (const int64_t capacity : {1, 3}) {
                            c.request.expert_capacity = capacity;
                            if (!is_subset) expect_same(c, describe(c.inputs()));
                        }
                    }
                }
            }
        }
    }
}

TEST(MoeInitRoutingV3, OneExpertMayTakeAllAndAllMayBeMasked) {
    for (const int32_t id : {6, -1}) {
        Case c(DType::kBf16, 11, 4, 19, 7);
        std::fill_n(c.expert_idx.as<int32_t>(), 44, id);
        c.request.quant_mode = 1;
        for (const int64_t type : {0, 1, 2}) {
            c.request.expert_tokens_num_type = type;
            expect_same(c, std::to_string(id));
        }
    }
}

// Enough slots and bytes that sort and copy are both cut into tasks.
TEST(MoeInitRoutingV3, ManySlotsAreSortedAndCopiedByManyThreads) {
    Case c(DType::kBf16, 20011, 8, 40, 37);
    c.with_range(3, 30);
    for (const int64_t row_idx_type : {0, 1}) {
        c.request.row_idx_type = row_idx_type;
        expect_same(c, "many");
    }
}

// The seed's two performance templates, as they are.
// Covers: moe_init_routing_v3 template=low_latency,large_batch
// Example: moe_init_routing_v3: the low-latency and the large-batch template
TEST(MoeInitRoutingV3, TheSeedsTemplateShapesWork) {
    Case low_latency(DType::kBf16, 1, 8, 7168, 256);
    low_latency.with_scale({256, 7168}).with_range(0, 256);
    low_latency.request.quant_mode = 1;
    low_latency.request.expert_tokens_num_type = 2;
    low_latency.request.row_idx_type = 1;
    expect_same(low_latency, "low latency");
    for (const size_t num_tokens : {384, 8192}) {
        Case large_batch(DType::kBf16, num_tokens, 8, 512, 256);
        large_batch.with_range(224, 256);
        large_batch.request.row_idx_type = 1;
        large_batch.request.expert_tokens_num_type = 1;
        expect_same(large_batch, "large batch");
    }
}

// Negative tests: a valid request, one thing wrong, the whole message.
class MoeInitRoutingV3Refuses : public testing::Test {
  protected:
    // The error of both paths; outputs have the shapes of the request before `change`.
    template <typename Change>
    std::string message(Case& c, const Change& change) {
        MoeInitRoutingV3Request request = c.inputs();
        Outputs outputs(moe_init_routing_v3_shapes(request).value());
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
              "moe_init_routing_v3: scale has shape [4, 4]; it must be [N] | [1] | [R, H] | [1, H] "
              "with H = 5 (x)");
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
              "moe_init_routing_v3: expanded_x has shape [6, 5]; it must be "
              "[P, H] | [expert_num, expert_capacity, H] with expert_num = 4, expert_capacity = 0, "
              "H = 5 (x)");
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
