// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(ListenAddress, IsReadAsItIsWritten) {
    for (const char* text : {"127.0.0.1:8000", "0.0.0.0:0", "[::1]:65535", "[::]:80"}) {
        const Result<ListenAddress> address = parse_listen_address(text);
        ASSERT_TRUE(address.ok()) << text;
        EXPECT_EQ(address.value().text(), text);
        EXPECT_GT(socket_address_of(address.value()).size, 0U);
    }
    EXPECT_EQ(parse_listen_address("localhost:80").value().text(), "127.0.0.1:80");
}

TEST(ListenAddress, KnowsWhatOnlyThisMachineReaches) {
    for (const char* text : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1"}) {
        EXPECT_TRUE(parse_listen_address(text).value().is_loopback()) << text;
    }
    for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1"}) {
        EXPECT_FALSE(parse_listen_address(text).value().is_loopback()) << text;
    }
}

TEST(ListenAddress, RefusesNamesPortsAndHalves) {
    for (const char* text : {"",
                             "8000",
                             ":8000",
                             "127.0.0.1",
                             "127.0.0.1:",
                             "127.0.0.1:65536",
                             "127.0.0.1:-1",
                             "127.0.0.1:80x",
                             "example.org:80",
                             "::1:80",
                             "[::1]",
                             "256.0.0.1:80",
                             "127.0.0.1 :80"}) {
        const Result<ListenAddress> address = parse_listen_address(text);
        ASSERT_FALSE(address.ok()) << text;
        EXPECT_THAT(address.error().message, testing::HasSubstr("must be ADDRESS:PORT")) << text;
    }
}

}  // namespace
}  // namespace afd::daemon
