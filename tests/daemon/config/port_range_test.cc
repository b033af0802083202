// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/port_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(PortRange, IsTwoPortsOrAny) {
    const PortRange range = parse_port_range("7420-7499").value();
    EXPECT_EQ(range.first, 7420);
    EXPECT_EQ(range.last, 7499);
    EXPECT_EQ(parse_port_range("65535-65535").value().last, 65535);
    EXPECT_EQ(parse_port_range("").value().first, 0);
}

TEST(PortRange, AnythingElseIsRefused) {
    for (const char* wrong : {"7420",
                              "7420-",
                              "-7499",
                              "7499-7420",
                              "0-10",
                              "7420-65536",
                              "7420-7499 ",
                              "a-b",
                              "1-2-3"}) {
        const Result<> checked = check_port_range(wrong);
        ASSERT_FALSE(checked.ok()) << wrong;
        EXPECT_THAT(checked.error().message, ::testing::HasSubstr("as in 7420-7499")) << wrong;
    }
}

}  // namespace
}  // namespace afd::daemon
