// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/ucx_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/placement/ucx_host.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

const NetworkDevices kDevices = {
    {"lo", {"127.0.0.1", "::1"}}, {"eth0", {"192.168.1.5"}}, {"ib0", {"10.0.0.1", "fd00::1"}}};

Config with_devices(const std::string& devices, const std::string& transports = "tcp") {
    Config config;
    config.ucx_devices = devices;
    config.ucx_transports = transports;
    return config;
}

std::string network_refusal(const Config& config, const std::string& host) {
    const auto network = choose_ucx_network(config, host, kDevices);
    return network.ok() ? "" : network.error().message;
}

// UCX listens on each device that it may use, and whoever reaches it there can end the worker.
TEST(UcxNetwork, ByDefaultUsesTheDeviceThatHasTheAddress) {
    const Config config = with_devices(kUcxAuto);
    EXPECT_EQ(choose_ucx_network(config, "127.0.0.1", kDevices).value().text(), "127.0.0.1 on lo");
    EXPECT_EQ(choose_ucx_network(config, "127.0.0.9", kDevices).value().devices, "lo");
    EXPECT_EQ(choose_ucx_network(config, "10.0.0.1", kDevices).value().text(), "10.0.0.1 on ib0");
    EXPECT_EQ(choose_ucx_network(config, "fd00:0::1", kDevices).value().devices, "ib0");
    // Memory has no devices.
    const Config with_memory = with_devices(kUcxAuto, "tcp,cma");
    EXPECT_EQ(choose_ucx_network(with_memory, "10.0.0.1", kDevices).value().devices, "ib0");
}

TEST(UcxNetwork, TransportsWithOtherDevicesHaveAllOfThem) {
    const Config config = with_devices(kUcxAuto, "rc,tcp");
    EXPECT_EQ(choose_ucx_network(config, "10.0.0.1", kDevices).value().text(),
              "10.0.0.1 on every device");
    // UCX finds out what the kernel does not tell.
    EXPECT_EQ(choose_ucx_network(with_devices(kUcxAuto), "10.0.0.1", {}).value().devices, "all");
}

TEST(UcxNetwork, EveryAddressIsOnEveryDevice) {
    EXPECT_EQ(choose_ucx_network(with_devices(kUcxAuto), "0.0.0.0", kDevices).value().text(),
              "0.0.0.0 on every device");
    EXPECT_EQ(choose_ucx_network(with_devices("ib0"), "::", kDevices).value().devices, "ib0");
}

TEST(UcxNetwork, DevicesThatAreNamedStay) {
    for (const char* devices : {"all", "ib0", "lo,ib0", "^eth0"}) {
        EXPECT_EQ(choose_ucx_network(with_devices(devices), "10.0.0.1", kDevices).value().devices,
                  devices);
    }
    EXPECT_EQ(network_refusal(with_devices("mlx5_0:1", "rc"), "10.0.0.1"), "");
}

TEST(UcxNetwork, TellsWorkersWhereAndAtWhichPorts) {
    Config config = with_devices(kUcxAuto);
    config.host_ports = "7420-7499";
    const UcxNetwork network = choose_ucx_network(config, "10.0.0.1", kDevices).value();
    EXPECT_EQ(network.text(), "10.0.0.1 on ib0, ports 7420 to 7499");
    control::Ucx told;
    network.store(told);
    EXPECT_EQ(told.host(), "10.0.0.1");
    EXPECT_EQ(told.devices(), "ib0");
    EXPECT_EQ(told.first_port(), 7420u);
    EXPECT_EQ(told.last_port(), 7499u);
}

TEST(UcxNetwork, WhatThisHostDoesNotHaveIsRefused) {
    EXPECT_THAT(network_refusal(with_devices(kUcxAuto), "10.9.9.9"),
                HasSubstr("ucx_host = '10.9.9.9': no network device of this host has this"));
    EXPECT_THAT(network_refusal(with_devices("ib0,eth7"), "10.0.0.1"),
                HasSubstr("ucx_devices = 'ib0,eth7': this host has no network device 'eth7'"));
}

TEST(UcxNetwork, TheKernelTellsOfTheLoopbackDevice) {
    EXPECT_EQ(device_with(network_devices(), "127.0.0.1"), "lo");
}

}  // namespace
}  // namespace afd::daemon
