// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

using ::testing::HasSubstr;

void expect_refused(const Geometry& geometry, const char* parameter, const char* allowed) {
    const Result<> result = validate(geometry);
    ASSERT_FALSE(result.ok()) << parameter;
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr(parameter));
    EXPECT_THAT(result.error().message, HasSubstr(allowed));
}

TEST(Geometry, AcceptsItsLimits) {
    Geometry geometry = small_geometry();
    geometry.num_sessions = 1024;
    geometry.num_micro_batches = 64;
    geometry.selected_expert_num = 68;
    geometry.num_ffn_workers = 0;
    EXPECT_TRUE(validate(geometry).ok());
}

TEST(Geometry, RefusesEachParameterOutOfRangeByName) {
    Geometry geometry = small_geometry();
    geometry.num_sessions = 1025;
    expect_refused(geometry, "num_sessions is 1025", "1 to 1024");
    geometry = small_geometry();
    geometry.num_sessions = 0;
    expect_refused(geometry, "num_sessions is 0", "1 to 1024");
    geometry = small_geometry();
    geometry.num_micro_batches = 65;
    expect_refused(geometry, "num_micro_batches is 65", "1 to 64");
    geometry = small_geometry();
    geometry.micro_batch_size = 0;
    expect_refused(geometry, "micro_batch_size is 0", "1 to");
    geometry = small_geometry();
    geometry.selected_expert_num = 69;
    expect_refused(geometry, "selected_expert_num is 69", "1 to 68");
    geometry = small_geometry();
    geometry.num_experts = 0;
    expect_refused(geometry, "num_experts is 0", "1 to");
    geometry = small_geometry();
    geometry.num_ffn_workers = 1025;
    expect_refused(geometry, "num_ffn_workers is 1025", "0 to 1024");
    geometry = small_geometry();
    geometry.attn_to_ffn_token_bytes = 500;
    expect_refused(geometry, "attn_to_ffn_token_bytes is 500", "multiple of 512");
    geometry = small_geometry();
    geometry.ffn_to_attn_token_bytes = 0;
    expect_refused(geometry, "ffn_to_attn_token_bytes is 0", "multiple of 512");
}

// Goal: no product overflows. Method: every factor within its own limit, the product far beyond
// 64 bits and just beyond the limit of a window. Oracle: refused, naming the factors.
TEST(Geometry, RefusesWindowsThatOverflow) {
    Geometry geometry = small_geometry();
    geometry.num_sessions = 1024;
    geometry.num_micro_batches = 64;
    geometry.micro_batch_size = 0x7fffffff;
    geometry.selected_expert_num = 68;
    geometry.attn_to_ffn_token_bytes = 0xfffffe00;
    expect_refused(geometry, "micro_batch_size 2147483647", "exceeds 70368744177664 bytes");

    geometry = small_geometry();
    geometry.num_sessions = 1;
    geometry.num_micro_batches = 1;
    geometry.selected_expert_num = 1;
    geometry.attn_to_ffn_token_bytes = 1u << 16;
    geometry.micro_batch_size = 1u << 30;
    EXPECT_TRUE(validate(geometry).ok());
    geometry.micro_batch_size += 1;
    expect_refused(geometry, "micro_batch_size 1073741825", "exceeds");
}

}  // namespace
}  // namespace afd::schedule
