// SPDX-License-Identifier: Apache-2.0

// The C interface: what its errors name. That programs in C can use it is tests/calls/package.

#include "calls/afd_ops.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace {

struct AlignedBytes {
    alignas(AFD_OPS_ALIGNMENT) std::array<std::byte, 4096> bytes = {};
};

class AfdOps : public testing::Test {
  protected:
    ~AfdOps() override { afd_ops_free(call_); }

    int query(const char* attributes) {
        const afd_ops_tensor x{"x", logits_.data(), AFD_OPS_FP32, 2, {1, 4}, {}};
        return afd_ops_query("moe_gating_top_k", attributes, &x, 1, nullptr, &call_, &error_);
    }

    std::array<float, 4> logits_ = {1, 2, 3, 4};
    afd_ops_call* call_ = nullptr;
    afd_ops_error error_ = {};
};

TEST_F(AfdOps, NamesAnAttributeOfOneLetterThatIsMissing) {
    EXPECT_EQ(query("{}"), AFD_OPS_INVALID_ARGUMENT);
    EXPECT_STREQ(error_.text, "moe_gating_top_k: attribute k is missing; it has no default");
    EXPECT_STREQ(error_.parameter, "k");
}

TEST_F(AfdOps, RefusesAnAttributeThatStandsTwice) {
    EXPECT_EQ(query(R"({"k": 1, "norm_type": 1, "k": 2})"), AFD_OPS_INVALID_ARGUMENT);
    EXPECT_STREQ(error_.text, "moe_gating_top_k: attribute k is given twice");
    EXPECT_STREQ(error_.parameter, "k");
}

TEST_F(AfdOps, RefusesAnOutputThatHasNoName) {
    const afd_ops_tensor x{"x", logits_.data(), AFD_OPS_FP32, 2, {1, 4}, {}};
    const std::array<const char*, 2> given = {"y", nullptr};
    afd_ops_options options = {};
    options.outputs_given = given.data();
    options.num_outputs_given = given.size();
    EXPECT_EQ(afd_ops_query("moe_gating_top_k", R"({"k": 2})", &x, 1, &options, &call_, &error_),
              AFD_OPS_INVALID_ARGUMENT);
    EXPECT_STREQ(error_.text, "outputs_given[1] is null; it must be the name of an output");
}

TEST_F(AfdOps, NamesAWorkspaceThatIsNotAligned) {
    ASSERT_EQ(query(R"({"k": 2})"), AFD_OPS_OK) << error_.text;
    std::array<float, 2> y = {};
    std::array<int32_t, 2> expert_idx = {};
    const std::array<void*, 2> outputs = {y.data(), expert_idx.data()};
    AlignedBytes memory;
    ASSERT_LT(afd_ops_workspace_bytes(call_), memory.bytes.size());
    EXPECT_EQ(
        afd_ops_run(call_, outputs.data(), &memory.bytes[1], memory.bytes.size() - 1, &error_),
        AFD_OPS_INVALID_ARGUMENT);
    EXPECT_STREQ(error_.parameter, "workspace");
    EXPECT_STREQ(error_.text,
                 "moe_gating_top_k: workspace begins at an address that is no multiple of 64");
    ASSERT_EQ(afd_ops_run(call_, outputs.data(), memory.bytes.data(), memory.bytes.size(), &error_),
              AFD_OPS_OK);
    EXPECT_EQ(expert_idx[0], 3);
}

}  // namespace
