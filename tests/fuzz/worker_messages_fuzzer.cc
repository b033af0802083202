// SPDX-License-Identifier: Apache-2.0
//
// What an attention worker sends over the control channel. Input: bytes of its socket. They go
// through a ControlChannel; the events in them go to a gateway with three requests of a client,
// whose sequence ids are 1, 2 and 3. Oracle: the client gets at most one end for a request and no
// token behind it.

#include <sys/socket.h>

#include <array>
#include <map>

#include "daemon/control/control_channel.h"
#include "proto/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/gateway_around.h"

namespace {

void ask(afd::fuzz::GatewayAround& around, uint64_t id) {
    afd::client::Request request;
    request.set_request_id(id);
    request.mutable_generate()->set_text("abc");
    request.mutable_generate()->set_max_tokens(4);
    request.mutable_generate()->set_return_logprobs(id == 2);
    request.mutable_generate()->set_prompt_logprobs(id == 2);
    around.client().ask(request);
}

void check_answers(const afd::daemon::MemorySession& client) {
    std::map<uint64_t, int> num_ends;
    for (const afd::client::Response& answer : client.answers) {
        int& ends = num_ends[answer.request_id()];
        AFD_ASSERT(ends == 0,
                   "request %llu gets something behind its end",
                   static_cast<unsigned long long>(answer.request_id()));
        if (answer.has_finished() || answer.has_error()) ++ends;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // More than a socket takes at once says nothing new.
    if (size > size_t{64} << 10) return 0;
    afd::fuzz::GatewayAround around;
    for (const uint64_t id : {1, 2, 3}) ask(around, id);
    std::array<int, 2> fds{};
    AFD_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0, "no sockets");
    const afd::daemon::UniqueFd worker(fds[0]);
    afd::daemon::ControlChannel channel{afd::daemon::UniqueFd(fds[1])};
    if (::send(worker.get(), data, size, MSG_NOSIGNAL) < 0) return 0;
    static_cast<void>(channel.read().ok());
    afd::control::WorkerMessage message;
    while (true) {
        const auto next = channel.next(message);
        if (!next.ok() || !next.value()) break;
        if (message.has_events()) around.gateway().on_events(0, message.events());
        if (message.has_wait()) {
            around.gateway().on_attention_wait(0, !message.wait().text().empty());
        }
    }
    around.gateway().on_attention_gone(0, {});
    check_answers(around.client());
    return 0;
}
