// SPDX-License-Identifier: Apache-2.0
#include "proto/socket_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd {
namespace {

using ::testing::HasSubstr;

TEST(InstanceName, IsRefusedUnlessItIsAPlainWord) {
    EXPECT_TRUE(check_instance_name("a_1").ok());
    EXPECT_TRUE(check_instance_name(std::string(kInstanceNameBytesMax, 'a')).ok());
    for (const std::string bad : {"", ".hidden", "a/b", "a b", "a-b", "A", "\xc3\xa9"}) {
        const Result<> result = check_instance_name(bad);
        ASSERT_FALSE(result.ok()) << bad;
        EXPECT_EQ(result.error().code, Code::kInvalidArgument);
        EXPECT_THAT(result.error().message, HasSubstr("'" + bad + "'"));
    }
    EXPECT_FALSE(check_instance_name(std::string(kInstanceNameBytesMax + 1, 'a')).ok());
}

}  // namespace
}  // namespace afd
