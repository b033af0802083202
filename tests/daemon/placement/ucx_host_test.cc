// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/ucx_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using testing::HasSubstr;

Config leader(const std::string& listen, const std::string& ucx_host) {
    Config config;
    config.ffn_workers = 1;
    config.ffn_hosts = "local,b";
    config.cluster_listen = listen;
    config.ucx_host = ucx_host;
    return config;
}

// What workers of other hosts are told is an address at which they find this one.
TEST(UcxHost, OfTheLeaderIsWhereTheOthersJoin) {
    EXPECT_EQ(own_ucx_host(leader("10.0.0.1:7411", kUcxAuto)).value(), "10.0.0.1");
    EXPECT_EQ(own_ucx_host(leader("[fd00::1]:7411", kUcxAuto)).value(), "fd00::1");
    EXPECT_EQ(own_ucx_host(leader("10.0.0.1:7411", "10.1.0.1")).value(), "10.1.0.1");
    // All hosts are on this machine.
    EXPECT_EQ(own_ucx_host(leader("127.0.0.1:7411", kUcxAuto)).value(), "127.0.0.1");
    EXPECT_EQ(own_ucx_host(leader("127.0.0.1:7411", "127.0.0.1")).value(), "127.0.0.1");
    EXPECT_EQ(own_ucx_host(leader("0.0.0.0:7411", "10.1.0.1")).value(), "10.1.0.1");
}

TEST(UcxHost, WithoutOtherHostsIsThisMachineAlone) {
    Config config;
    config.ucx_host = kUcxAuto;
    EXPECT_EQ(own_ucx_host(config).value(), "127.0.0.1");
    config.ucx_host = "10.0.0.1";
    EXPECT_EQ(own_ucx_host(config).value(), "10.0.0.1");
}

TEST(UcxHost, AnAddressThatNobodyElseReachesIsRefused) {
    for (const char* listen : {"10.0.0.1:7411", "0.0.0.0:7411", "[fd00::1]:7411"}) {
        const auto host = own_ucx_host(leader(listen, "127.0.0.1"));
        ASSERT_FALSE(host.ok()) << listen;
        EXPECT_EQ(host.error().code, Code::kInvalidArgument);
        EXPECT_THAT(host.error().message,
                    HasSubstr("ucx_host = '127.0.0.1': only this machine reaches it"));
    }
    Config joining;
    joining.ucx_host = "::1";
    EXPECT_FALSE(choose_ucx_host(joining, "10.0.0.2").ok());
    EXPECT_EQ(choose_ucx_host(joining, "127.0.0.1").value(), "::1");
}

TEST(UcxHost, EveryAddressIsNone) {
    for (const char* listen : {"0.0.0.0:7411", "[::]:7411"}) {
        const auto host = own_ucx_host(leader(listen, kUcxAuto));
        ASSERT_FALSE(host.ok()) << listen;
        EXPECT_THAT(host.error().message, HasSubstr("ucx_host is not set: cluster_listen = '"));
        // Where only the others have FFN workers, nobody listens here.
        Config elsewhere = leader(listen, kUcxAuto);
        elsewhere.ffn_hosts = "b,localhost";
        EXPECT_TRUE(own_ucx_host(elsewhere).ok()) << listen;
        elsewhere.ffn_hosts = "b,local";
        EXPECT_TRUE(own_ucx_host(elsewhere).ok()) << "the only one is the other's";
        elsewhere.ffn_workers = 2;
        EXPECT_FALSE(own_ucx_host(elsewhere).ok());
        elsewhere.ffn_hosts = "";
        elsewhere.attention_hosts = "b";
        EXPECT_FALSE(own_ucx_host(elsewhere).ok()) << "all FFN workers are here";
    }
}

}  // namespace
}  // namespace afd::daemon
