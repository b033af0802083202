// SPDX-License-Identifier: Apache-2.0
//
// Goal: an address comes out of its bytes as it went in, and other bytes are refused. Oracle:
// ucx_address.h.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "schedule/ucx/ucx_address.h"
#include "schedule/ucx/ucx_library.h"

namespace afd::schedule {
namespace {

using testing::HasSubstr;

UcxAddress address_of(const char* host, bool has_near) {
    UcxAddress address{.ucx = parse_ucx_host(host, 7411).value(), .near = {}};
    if (has_near) address.near = new_near_address();
    return address;
}

TEST(UcxAddress, ComesOutAsItWentIn) {
    for (const char* host : {"10.1.2.3", "fe80::1"}) {
        for (const bool has_near : {false, true}) {
            const UcxAddress address = address_of(host, has_near);
            const Result<UcxAddress> found = UcxAddress::parse(address.bytes());
            ASSERT_TRUE(found.ok()) << found.error().message;
            EXPECT_EQ(std::memcmp(&found.value().ucx, &address.ucx, sizeof(address.ucx)), 0);
            ASSERT_EQ(found.value().near.has_value(), has_near);
            if (!has_near) continue;
            EXPECT_EQ(found.value().near->name, address.near->name);
            EXPECT_TRUE(found.value().near->is_of_same_host(*address.near));
        }
    }
}

TEST(UcxAddress, OtherBytesAreRefused) {
    const std::vector<std::byte> bytes = address_of("10.1.2.3", true).bytes();
    for (size_t count = 0; count < bytes.size(); ++count) {
        const bool is_whole_without_near = count == 1 + sizeof(sockaddr_in);
        EXPECT_EQ(UcxAddress::parse(std::span(bytes).first(count)).ok(), is_whole_without_near)
            << count;
    }
    const auto message_of = [](const std::vector<std::byte>& wrong) {
        const Result<UcxAddress> found = UcxAddress::parse(wrong);
        return found.ok() ? "" : found.error().message;
    };
    std::vector<std::byte> longer = bytes;
    longer.push_back({});
    EXPECT_EQ(message_of(longer), "an address with 41 bytes behind it");
    std::vector<std::byte> unknown = bytes;
    unknown[1] = std::byte{99};
    EXPECT_EQ(message_of(unknown), "an address of family 99 and 16 bytes");
    EXPECT_EQ(message_of({}), "an address of 0 bytes");
}

}  // namespace
}  // namespace afd::schedule
