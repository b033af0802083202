// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/address_kind.h"

#include <gtest/gtest.h>

#include <utility>

namespace afd::daemon {
namespace {

TEST(AddressKind, SaysWhomAnAddressReaches) {
    const std::pair<const char*, AddressKind> cases[] = {
        {"127.0.0.1", AddressKind::kLoopback},
        {"127.3.0.9", AddressKind::kLoopback},
        {"::1", AddressKind::kLoopback},
        {"0:0:0:0:0:0:0:1", AddressKind::kLoopback},
        {"::ffff:127.0.0.1", AddressKind::kLoopback},
        {"0.0.0.0", AddressKind::kAny},
        {"::", AddressKind::kAny},
        {"0::0", AddressKind::kAny},
        {"224.0.0.1", AddressKind::kMulticast},
        {"239.255.255.255", AddressKind::kMulticast},
        {"ff02::1", AddressKind::kMulticast},
        {"10.0.0.1", AddressKind::kUnicast},
        {"fd00::1", AddressKind::kUnicast},
        {"::ffff:10.0.0.1", AddressKind::kUnicast},
    };
    for (const auto& [host, kind] : cases) EXPECT_EQ(kind_of_address(host), kind) << host;
}

TEST(AddressKind, WhatIsNoAddressHasNone) {
    for (const char* host : {"", "localhost", "10.0.0", "[::1]", "10.0.0.1:80", "fe80::1%eth0"}) {
        EXPECT_EQ(kind_of_address(host), std::nullopt) << host;
        EXPECT_EQ(canonical_address(host), host);
    }
}

TEST(AddressKind, OneAddressHasOneText) {
    EXPECT_EQ(canonical_address("fd00:0:0::0:1"), "fd00::1");
    EXPECT_EQ(canonical_address("FD00::A"), "fd00::a");
    EXPECT_EQ(canonical_address("10.0.0.1"), "10.0.0.1");
}

}  // namespace
}  // namespace afd::daemon
