// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/join_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(JoinAddress, IsReadAsItIsWritten) {
    for (const char* text : {"10.0.0.1:7411", "[fd00::1]:65535", "127.0.0.1:1"}) {
        const Result<JoinAddress> address = parse_join_address(text);
        ASSERT_TRUE(address.ok()) << text;
        EXPECT_FALSE(address.value().is_name) << text;
        EXPECT_EQ(address.value().text(), text);
    }
}

TEST(JoinAddress, MayBeAName) {
    for (const char* text : {"node1:7411", "Node_1.example.org:1", "afd-0.afd.default.svc:7411"}) {
        const Result<JoinAddress> address = parse_join_address(text);
        ASSERT_TRUE(address.ok()) << text;
        EXPECT_TRUE(address.value().is_name) << text;
        EXPECT_EQ(address.value().text(), text);
    }
}

TEST(JoinAddress, RefusesHalvesAndMistypedNumbers) {
    for (const std::string& text : {std::string(""),
                                    std::string("7411"),
                                    std::string(":7411"),
                                    std::string("node1"),
                                    std::string("node1:"),
                                    std::string("node1:65536"),
                                    std::string("node1:-1"),
                                    std::string("node 1:80"),
                                    std::string("node1/:80"),
                                    std::string("256.0.0.1:80"),
                                    std::string("fd00::1:80"),
                                    std::string("[node1]:80"),
                                    std::string(254, 'a') + ":80"}) {
        const Result<JoinAddress> address = parse_join_address(text);
        ASSERT_FALSE(address.ok()) << text;
        EXPECT_THAT(address.error().message, testing::HasSubstr("must be HOST:PORT")) << text;
    }
}

TEST(JoinAddress, RefusesThePortThatIsNone) {
    for (const char* text : {"10.0.0.1:0", "node1:0"}) {
        const Result<JoinAddress> address = parse_join_address(text);
        ASSERT_FALSE(address.ok()) << text;
        EXPECT_THAT(address.error().message, testing::HasSubstr("nobody listens")) << text;
    }
}

}  // namespace
}  // namespace afd::daemon
