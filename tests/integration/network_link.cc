// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_link.h"

#include <cstdlib>
#include <vector>

#include "tests/integration/network_devices.h"

namespace afd::test {
namespace {

std::string in_us(int64_t count) {
    return std::to_string(count) + "us";
}

// netem draws evenly from both sides of a delay, LinkConditions from above it.
std::vector<std::string> netem_command(const std::string& device,
                                       const tools::LinkConditions& conditions) {
    const int64_t aside = conditions.jitter.count() / 2;
    std::vector<std::string> all = {"tc", "qdisc", "replace", "dev", device, "root", "netem"};
    all.insert(all.end(), {"delay", in_us(conditions.delay.count() + aside)});
    if (aside > 0) all.push_back(in_us(aside));
    if (conditions.loss > 0) {
        all.insert(all.end(), {"loss", std::to_string(100 * conditions.loss) + "%"});
    }
    if (conditions.mbit_per_second > 0) {
        all.insert(all.end(), {"rate", std::to_string(conditions.mbit_per_second) + "mbit"});
    }
    return all;
}

// "Sent 90 bytes 1 pkt (dropped 12, overlimits 0 requeues 0)"
uint64_t num_dropped(const std::string& statistics) {
    const std::string word = "dropped ";
    const size_t found = statistics.find(word);
    return found == std::string::npos ? 0 : std::stoull(statistics.substr(found + word.size()));
}

}  // namespace

bool kernel_has_netem() {
    // The loopback device of a namespace that ends with the command.
    static const bool has = run_tool({"unshare",
                                      "--net",
                                      "tc",
                                      "qdisc",
                                      "add",
                                      "dev",
                                      "lo",
                                      "root",
                                      "netem",
                                      "delay",
                                      "1us"})
                                .exit_status == 0;
    return has;
}

NetworkLink::NetworkLink(const std::string& near,
                         const std::string& far,
                         const std::optional<tools::LinkConditions>& conditions)
    : near_(near), far_(far), conditions_(conditions), has_netem_(kernel_has_netem()) {
    if (!has_netem_ && std::getenv("AFD_NETEM_REQUIRED") != nullptr) return;
    if (conditions && !has_netem_) {
        emulator_ = std::make_unique<tools::LinkEmulator>(std::array{near_, far_}, *conditions);
        is_there_ = emulator_->ok();
    } else {
        is_there_ = run_ip({"link", "add", near_, "type", "veth", "peer", "name", far_});
    }
}

NetworkLink::~NetworkLink() {
    run_ip({"link", "del", near_});
}

bool NetworkLink::move_far(const std::string& name_space,
                           const std::string& name,
                           const std::string& address) {
    is_there_ = is_there_ && move_device(far_, name_space, name, address) &&
                run_ip({"link", "set", near_, "up"});
    far_ = name;
    name_space_ = name_space;
    // What a device does with its packets does not move with it, so it is said only now.
    return is_there_ && (emulator_ != nullptr || !conditions_ || set_netem(*conditions_));
}

bool NetworkLink::set_netem(const tools::LinkConditions& conditions) const {
    return run_tool(netem_command(near_, conditions)).exit_status == 0 &&
           run_tool(netem_command(far_, conditions), inside_namespace(name_space_)).exit_status ==
               0;
}

uint64_t NetworkLink::num_lost() const {
    if (emulator_ != nullptr) return emulator_->num_lost();
    const auto of = [](const std::string& device, const std::vector<std::string>& before) {
        return num_dropped(run_tool({"tc", "-s", "qdisc", "show", "dev", device}, before).output);
    };
    return of(near_, {}) + of(far_, inside_namespace(name_space_));
}

bool NetworkLink::cut() const {
    return has_netem_ ? set_netem({.loss = 1}) : run_ip({"link", "set", near_, "down"});
}

bool NetworkLink::mend() const {
    return has_netem_ ? set_netem(conditions_.value_or(tools::LinkConditions{}))
                      : run_ip({"link", "set", near_, "up"});
}

}  // namespace afd::test
