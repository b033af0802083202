// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "proto/typed_number.h"

namespace afd::daemon {
namespace {

std::string take_variable(const char* name) {
    const char* value = std::getenv(name);
    std::string taken = value == nullptr ? "" : value;
    ::unsetenv(name);
    return taken;
}

// 0 for what is no number.
uint64_t number_of(const std::string& text) {
    return whole_number(text).value_or(0);
}

}  // namespace

ServiceNotifier ServiceNotifier::from_environment() {
    ServiceNotifier notifier;
    const std::string path = take_variable("NOTIFY_SOCKET");
    const uint64_t watchdog_us = number_of(take_variable("WATCHDOG_USEC"));
    const std::string pid = take_variable("WATCHDOG_PID");
    const bool is_path = !path.empty() && (path[0] == '/' || path[0] == '@');
    if (!is_path || path.size() >= sizeof(sockaddr_un::sun_path)) return notifier;
    notifier.path_ = path;
    const bool is_ours = pid.empty() || number_of(pid) == static_cast<uint64_t>(::getpid());
    if (is_ours) notifier.watchdog_us_ = watchdog_us;
    return notifier;
}

std::vector<std::string> ServiceNotifier::environment() const {
    if (!is_on()) return {};
    std::vector<std::string> variables = {"NOTIFY_SOCKET=" + path_};
    // Without WATCHDOG_PID: it is for whoever has it.
    if (watchdog_us_ > 0) variables.push_back("WATCHDOG_USEC=" + std::to_string(watchdog_us_));
    return variables;
}

void ServiceNotifier::send(const std::string& lines) const {
    if (path_.empty()) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    if (path_[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    static_cast<void>(::sendto(fd,
                               lines.data(),
                               lines.size(),
                               MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&address),
                               size));
    ::close(fd);
}

}  // namespace afd::daemon
