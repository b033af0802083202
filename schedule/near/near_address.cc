// SPDX-License-Identifier: Apache-2.0
#include "schedule/near/near_address.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

namespace afd::schedule {
namespace {

constexpr const char* kBootFile = "/proc/sys/kernel/random/boot_id";
constexpr const char* kNetworkFile = "/proc/self/ns/net";

// "01234567-89ab-...": 16 bytes in hex.
std::optional<std::array<std::byte, 16>> read_boot() {
    std::string text;
    std::ifstream(kBootFile) >> text;
    std::erase(text, '-');
    std::array<std::byte, 16> boot{};
    if (text.size() != 2 * boot.size()) return std::nullopt;
    for (size_t i = 0; i < boot.size(); ++i) {
        boot[i] = std::byte(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
    }
    return boot;
}

}  // namespace

std::optional<NearAddress> new_near_address() {
    const auto boot = read_boot();
    struct stat network {};
    if (!boot || ::stat(kNetworkFile, &network) != 0) return std::nullopt;
    NearAddress address{.boot = *boot, .network = network.st_ino};
    std::random_device random;
    for (std::byte& byte : address.name) byte = std::byte(random() & 0xff);
    return address;
}

}  // namespace afd::schedule
