// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/doorbells.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "schedule/wait/doorbell.h"

namespace afd::daemon {

namespace {

Result<std::vector<UniqueFd>> make_eventfds(size_t count) {
    std::vector<UniqueFd> fds;
    for (size_t i = 0; i < count; ++i) {
        fds.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (fds.back().valid()) continue;
        return Error{Code::kResourceExhausted,
                     std::string("cannot create a doorbell: ") + std::strerror(errno) +
                         "; raise the limit of open files (ulimit -n)"};
    }
    return fds;
}

}  // namespace

Result<Doorbells> Doorbells::make(size_t num_attention, size_t num_ffn) {
    Doorbells made;
    AFD_ASSIGN(made.attention_, make_eventfds(num_attention));
    AFD_ASSIGN(made.ffn_, make_eventfds(num_ffn));
    return made;
}

std::vector<int> Doorbells::of(control::Role role, uint32_t index) const {
    const bool is_ffn = role == control::FFN;
    std::vector<int> fds{(is_ffn ? ffn_ : attention_)[index].get()};
    for (const UniqueFd& peer : is_ffn ? attention_ : ffn_) fds.push_back(peer.get());
    return fds;
}

void Doorbells::ring_all() const {
    for (const auto* doorbells : {&attention_, &ffn_}) {
        for (const UniqueFd& doorbell : *doorbells) schedule::ring(doorbell.get());
    }
}

}  // namespace afd::daemon
