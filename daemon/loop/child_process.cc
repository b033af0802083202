// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/child_process.h"

#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>
#include <utility>

namespace afd::daemon {

namespace {

// As the system takes lists: behind the last is a null.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
}

uv_stdio_container_t inherited_fd(int fd) {
    uv_stdio_container_t container{};
    container.flags = UV_INHERIT_FD;
    container.data.fd = fd;
    return container;
}

}  // namespace

// Given to libuv; outlives the ChildProcess until libuv returns it.
struct ChildProcess::Handle {
    uv_process_t uv;
    ChildProcess* owner;
};

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(EventLoop& loop,
                                                          const Start& start,
                                                          OnGone on_gone) {
    std::vector<std::string> arguments = {start.executable};
    arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
    std::vector<std::string> environment = start.environment;
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (std::ranges::find(start.withheld, text.substr(0, text.find('='))) ==
            start.withheld.end()) {
            environment.emplace_back(text);
        }
    }
    std::vector<char*> argv = pointers_to(arguments);
    std::vector<char*> variables = pointers_to(environment);
    std::array<uv_stdio_container_t, kInheritedFd + 1> stdio{};
    stdio[0].flags = UV_IGNORE;
    stdio[1] = inherited_fd(1);
    stdio[2] = inherited_fd(2);
    stdio[kInheritedFd] = inherited_fd(start.inherited);
    uv_process_options_t options{};
    options.file = start.executable.c_str();
    options.args = argv.data();
    options.env = variables.data();
    options.stdio = stdio.data();
    options.stdio_count = start.inherited < 0 ? kInheritedFd : kInheritedFd + 1;
    options.exit_cb = [](uv_process_t* handle, int64_t status, int signal) {
        ChildProcess* owner = static_cast<Handle*>(handle->data)->owner;
        if (owner == nullptr) return;
        // The callback may destroy the owner, and with it the stored function.
        const OnGone on_gone_copy = owner->on_gone_;
        on_gone_copy({.is_known = true, .status = status, .signal = signal});
    };
    auto* handle = new Handle{};
    handle->uv.data = handle;
    std::unique_ptr<ChildProcess> process(new ChildProcess(handle, std::move(on_gone)));
    const int status = uv_spawn(loop.uv(), &handle->uv, &options);
    if (status != 0) {
        return Error{status == UV_ENOENT ? Code::kNotFound : Code::kUnavailable,
                     "cannot start '" + start.executable + "': " + uv_strerror(status)};
    }
    return process;
}

ChildProcess::ChildProcess(Handle* handle, OnGone on_gone)
    : on_gone_(std::move(on_gone)), handle_(handle) {
    handle_->owner = this;
}

ChildProcess::~ChildProcess() {
    handle_->owner = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(&handle_->uv),
             [](uv_handle_t* closed) { delete static_cast<Handle*>(closed->data); });
}

int ChildProcess::pid() const {
    return handle_->uv.pid;
}

void ChildProcess::kill() {
    uv_process_kill(&handle_->uv, SIGKILL);
}

}  // namespace afd::daemon
