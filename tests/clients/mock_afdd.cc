// SPDX-License-Identifier: Apache-2.0
#include "tests/clients/mock_afdd.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/check.h"

namespace afd::test {

MockAnswer steady_answer(size_t num_chunks, milliseconds first, milliseconds gap) {
    MockAnswer answer;
    answer.chunks.resize(num_chunks);
    for (size_t i = 0; i < num_chunks; ++i) answer.chunks[i].after = i == 0 ? first : gap;
    return answer;
}

MockAfdd::MockAfdd(Plan plan, std::string instance)
    : plan_(std::move(plan)), instance_(std::move(instance)) {
    directory_.make_socket_directory();
    status_.set_instance(instance_);
    status_.set_state("ready");

    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = socket_path();
    AFD_ASSERT(path.size() < sizeof(address.sun_path), "path %s", path.c_str());
    std::memcpy(address.sun_path, path.data(), path.size());
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool listening =
        bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
        listen(listener_, 16) == 0;
    AFD_ASSERT(listening, "listen at %s: %s", path.c_str(), std::strerror(errno));
    wake_fd_ = eventfd(0, EFD_CLOEXEC);
    thread_ = std::thread([this] { serve(); });
}

MockAfdd::~MockAfdd() {
    stopping_.store(true, std::memory_order_release);
    const uint64_t one = 1;
    AFD_ASSERT(write(wake_fd_, &one, sizeof(one)) == sizeof(one), "wake the mock");
    thread_.join();
    if (listener_ >= 0) close(listener_);
    close(wake_fd_);
}

void MockAfdd::stall_once(size_t index, milliseconds after, milliseconds duration) {
    const std::lock_guard lock(mutex_);
    stall_index_ = index;
    stall_after_ = after;
    stall_duration_ = duration;
}

std::vector<client::Generate> MockAfdd::generates() const {
    const std::lock_guard lock(mutex_);
    return generates_;
}

size_t MockAfdd::num_cancels() const {
    const std::lock_guard lock(mutex_);
    return num_cancels_;
}

std::vector<bool> MockAfdd::run_flags() const {
    const std::lock_guard lock(mutex_);
    return run_flags_;
}

void MockAfdd::serve() {
    while (!stopping_.load(std::memory_order_acquire)) {
        wait_and_read();
        while (!events_.empty() && events_.begin()->first <= Clock::now()) {
            auto node = events_.extract(events_.begin());
            node.mapped().action();
        }
    }
    while (!peers_.empty()) disconnect(peers_.begin()->first);
}

void MockAfdd::wait_and_read() {
    std::vector<pollfd> items = {{wake_fd_, POLLIN, 0}, {listener_, POLLIN, 0}};
    std::vector<uint64_t> peer_ids;
    for (const auto& [peer_id, peer] : peers_) {
        items.push_back({peer.fd, POLLIN, 0});
        peer_ids.push_back(peer_id);
    }
    timespec timeout = {3600, 0};
    if (!events_.empty()) {
        const auto left = std::max(events_.begin()->first - Clock::now(), Clock::duration(0));
        timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
        timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
    }
    if (ppoll(items.data(), items.size(), &timeout, nullptr) <= 0) return;
    if (items[1].revents != 0) accept_peer();
    for (size_t i = 0; i < peer_ids.size(); ++i) {
        if (items[i + 2].revents != 0) read_peer(peer_ids[i]);
    }
}

void MockAfdd::accept_peer() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) peers_[next_peer_id_++].fd = fd;
}

void MockAfdd::read_peer(uint64_t peer_id) {
    const auto found = peers_.find(peer_id);
    if (found == peers_.end()) return;
    std::array<char, 16384> buffer;
    const ssize_t n = recv(found->second.fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) return disconnect(peer_id);
    found->second.reader.append(std::span(buffer).first(static_cast<size_t>(n)));
    while (true) {
        const auto it = peers_.find(peer_id);  // A request may have closed the connection.
        if (it == peers_.end()) return;
        const auto frame = it->second.reader.next();
        if (!frame.ok() || !frame.value().has_value()) return;
        client::Request request;
        AFD_ASSERT(request.ParseFromString(std::string(*frame.value())), "a client's bad request");
        handle(peer_id, request);
    }
}

void MockAfdd::handle(uint64_t peer_id, const client::Request& request) {
    const uint64_t id = request.request_id();
    client::Response response;
    response.set_request_id(id);
    switch (request.body_case()) {
        case client::Request::kGenerate:
            return generate(peer_id, request);
        case client::Request::kCancel:
            return cancel(peer_id, request);
        case client::Request::kStatus:
            *response.mutable_status() = status_;
            return send(peer_id, response);
        case client::Request::kMetrics:
            response.mutable_metrics()->set_text(
                "# HELP afd_x Things\n# TYPE afd_x gauge\nafd_x{engine=\"default\"} 1\n");
            return send(peer_id, response);
        case client::Request::kPing:
            return ping(peer_id, id);
        case client::Request::kResize:
            return resize(peer_id, request);
        case client::Request::kResume:
            response.mutable_error()->set_code(static_cast<uint32_t>(resume_error_.code));
            response.mutable_error()->set_message(resume_error_.message);
            return send(peer_id, response);
        case client::Request::kUpgrade:
            return upgrade(peer_id, id);
        case client::Request::kContext:
            return context(peer_id, request);
        case client::Request::kTrace:
            return trace(peer_id, id);
        case client::Request::kDrain:
            return drain(peer_id, id);
        case client::Request::kStop:
            return stop(peer_id, id);
        default:
            return disconnect(peer_id);
    }
}

void MockAfdd::ping(uint64_t peer_id, uint64_t request_id) {
    send_done(peer_id, request_id);
    if (++num_pings_ != ping_that_ends_waits_) return;
    // At one time, and so in their order.
    const Clock::time_point now = Clock::now();
    std::multimap<Clock::time_point, Event> due;
    for (auto& item : events_) due.emplace(now, std::move(item.second));
    events_ = std::move(due);
}

void MockAfdd::resize(uint64_t peer_id, const client::Request& request) {
    client::Response response;
    response.set_request_id(request.request_id());
    const client::Resize& asked = request.resize();
    if (asked.ffn_workers() > 9) {
        response.mutable_error()->set_code(static_cast<uint32_t>(Code::kResourceExhausted));
        response.mutable_error()->set_message("the mock has no room");
        return send(peer_id, response);
    }
    response.mutable_progress()->set_text("starting");
    send(peer_id, response);
    client::Resized& resized = *response.mutable_resized();
    resized.set_attention_workers(asked.attention_workers());
    resized.set_ffn_workers(asked.ffn_workers() + 1);
    resized.set_stood_still_us(42'600);
    resized.set_total_us(900'000);
    resized.set_num_replays(3);
    send(peer_id, response);
}

void MockAfdd::upgrade(uint64_t peer_id, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_progress()->set_text("pid 12: workers start");
    send(peer_id, response);
    client::Upgraded& upgraded = *response.mutable_upgraded();
    upgraded.set_pid(12);
    upgraded.set_version("9.8");
    upgraded.set_old_pid(11);
    upgraded.set_num_requests(3);
    upgraded.set_total_us(70'000);
    send(peer_id, response);
}

void MockAfdd::drain(uint64_t peer_id, uint64_t request_id) {
    drain_id_ = request_id;
    at(Clock::now() + drain_time_, peer_id, request_id, [=, this] {
        send_done(peer_id, request_id);
    });
}

void MockAfdd::stop(uint64_t peer_id, uint64_t request_id) {
    send_done(peer_id, request_id);
    if (stays_when_stopped_) return;
    if (cut_off_.empty()) {
        if (drain_id_ != 0) send_done(peer_id, drain_id_);
    } else {
        client::Response response;
        response.set_request_id(drain_id_);
        response.mutable_error()->set_code(static_cast<uint32_t>(Code::kUnavailable));
        response.mutable_error()->set_message(cut_off_);
        send(peer_id, response);
    }
    at(Clock::now() + milliseconds(20), peer_id, 0, [this] {
        close(std::exchange(listener_, -1));
        while (!peers_.empty()) disconnect(peers_.begin()->first);
    });
}

void MockAfdd::context(uint64_t peer_id, const client::Request& request) {
    client::Response response;
    response.set_request_id(request.request_id());
    const client::GetContext& asked = request.context();
    for (client::Worker& worker : *status_.mutable_workers()) {
        if (worker.role() != asked.role() || worker.index() != asked.index()) continue;
        response.mutable_context()->set_role(asked.role());
        response.mutable_context()->set_index(asked.index());
        if (!asked.has_run_flag()) continue;
        if (!keeps_worker_states_) worker.set_state(asked.run_flag() ? "ready" : "halted");
        const std::lock_guard lock(mutex_);
        run_flags_.push_back(asked.run_flag());
    }
    if (!response.has_context()) {
        response.mutable_error()->set_code(static_cast<uint32_t>(Code::kNotFound));
        response.mutable_error()->set_message("the mock has no such worker");
    }
    send(peer_id, response);
    if (++num_contexts_ >= num_contexts_max_) disconnect(peer_id);
}

void MockAfdd::trace(uint64_t peer_id, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    if (refuses_traces_) {
        response.mutable_error()->set_code(static_cast<uint32_t>(Code::kUnavailable));
        response.mutable_error()->set_message("another client is tracing");
        return send(peer_id, response);
    }
    if (is_idle_) return send_done(peer_id, request_id);
    response.mutable_trace_events()->set_role("attention");
    client::TraceEvent& event = *response.mutable_trace_events()->add_events();
    event.set_name("step");
    event.set_start_ns(1000);
    event.set_duration_ns(500);
    send(peer_id, response);
    send_done(peer_id, request_id);
}

void MockAfdd::generate(uint64_t peer_id, const client::Request& request) {
    const Clock::time_point now = Clock::now();
    size_t index = 0;
    {
        const std::lock_guard lock(mutex_);
        index = generates_.size();
        generates_.push_back(request.generate());
        if (index == stall_index_) {
            at(now + stall_after_, peer_id, 0, [this, duration = stall_duration_] {
                pollfd wake = {wake_fd_, POLLIN, 0};
                poll(&wake, 1, static_cast<int>(duration.count()));
            });
        }
    }
    const MockAnswer answer = plan_(index, request.generate());
    const uint64_t id = request.request_id();
    num_tokens_sent_[id] = 0;
    if (answer.accept) {
        client::Response response;
        response.set_request_id(id);
        client::Accepted& accepted = *response.mutable_accepted();
        const SamplingSettings& sampling = request.generate().sampling();
        accepted.set_seed(sampling.has_seed() ? sampling.seed() : 4242);
        accepted.set_num_prompt_tokens(3);
        if (request.generate().resumable_ms() > 0) accepted.set_resume_id("mock_id");
        if (request.generate().return_token_ids()) {
            for (uint32_t token : {1, 2, 3}) accepted.add_prompt_ids(token);
        }
        send(peer_id, response);
    }
    Clock::time_point when = now;
    uint32_t num_tokens = 0;
    for (const MockChunk& chunk : answer.chunks) {
        when += chunk.after;
        client::Response response;
        response.set_request_id(id);
        response.mutable_chunk()->set_text(chunk.text);
        response.mutable_chunk()->set_num_tokens(chunk.num_tokens);
        for (uint32_t i = 0; i < chunk.num_tokens; ++i) {
            if (request.generate().return_token_ids()) {
                response.mutable_chunk()->add_token_ids(100 + num_tokens + i);
            }
            if (request.generate().return_logprobs()) response.mutable_chunk()->add_logprobs(-0.5F);
        }
        num_tokens += chunk.num_tokens;
        at(when, peer_id, id, [=, this] {
            num_tokens_sent_[id] += response.chunk().num_tokens();
            send(peer_id, response);
        });
    }
    schedule_end(peer_id, id, when, answer, num_tokens);
}

void MockAfdd::schedule_end(uint64_t peer_id,
                            uint64_t request_id,
                            Clock::time_point when,
                            const MockAnswer& answer,
                            uint32_t num_tokens) {
    client::Response response;
    response.set_request_id(request_id);
    switch (answer.end) {
        case MockAnswer::End::kFinished:
            response.mutable_finished()->set_reason(client::LENGTH);
            response.mutable_finished()->set_num_prompt_tokens(3);
            response.mutable_finished()->set_num_cached_tokens(answer.num_cached_tokens);
            response.mutable_finished()->set_num_output_tokens(num_tokens +
                                                               answer.num_tokens_invented);
            return at(when, peer_id, request_id, [=, this] { send(peer_id, response); });
        case MockAnswer::End::kError:
            response.mutable_error()->set_code(static_cast<uint32_t>(answer.error.code));
            response.mutable_error()->set_message(answer.error.message);
            return at(when, peer_id, request_id, [=, this] { send(peer_id, response); });
        case MockAnswer::End::kDisconnect:
            return at(when, peer_id, request_id, [=, this] { disconnect(peer_id); });
        case MockAnswer::End::kGarbage:
            return at(when, peer_id, request_id, [=, this] {
                send_bytes(peer_id, "HTTP/1.1 400 Bad Request\r\n\r\n");
            });
        case MockAnswer::End::kRefusal:
            response.set_request_id(0);
            response.mutable_error()->set_code(static_cast<uint32_t>(answer.error.code));
            response.mutable_error()->set_message(answer.error.message);
            return at(when, peer_id, request_id, [=, this] {
                send(peer_id, response);
                disconnect(peer_id);
            });
        case MockAnswer::End::kNothing:
            return;
    }
}

void MockAfdd::cancel(uint64_t peer_id, const client::Request& request) {
    const uint64_t target = request.cancel().target();
    {
        const std::lock_guard lock(mutex_);
        ++num_cancels_;
    }
    std::erase_if(events_, [&](const auto& item) {
        return item.second.peer_id == peer_id && item.second.request_id == target;
    });
    send_done(peer_id, request.request_id());
    client::Response response;
    response.set_request_id(target);
    response.mutable_finished()->set_reason(client::CANCELLED);
    response.mutable_finished()->set_num_output_tokens(num_tokens_sent_[target]);
    send(peer_id, response);
}

void MockAfdd::at(Clock::time_point when,
                  uint64_t peer_id,
                  uint64_t request_id,
                  std::function<void()> action) {
    events_.emplace(when, Event{peer_id, request_id, std::move(action)});
}

void MockAfdd::send(uint64_t peer_id, const client::Response& response) {
    std::string bytes;
    append_frame(response, bytes);
    send_bytes(peer_id, bytes);
}

void MockAfdd::send_bytes(uint64_t peer_id, const std::string& bytes) {
    const auto found = peers_.find(peer_id);
    if (found == peers_.end()) return;
    // A client that has left is no matter for the mock.
    [[maybe_unused]] const ssize_t n =
        ::send(found->second.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void MockAfdd::send_done(uint64_t peer_id, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_done();
    send(peer_id, response);
}

void MockAfdd::disconnect(uint64_t peer_id) {
    const auto found = peers_.find(peer_id);
    if (found == peers_.end()) return;
    close(found->second.fd);
    peers_.erase(found);
    std::erase_if(events_, [&](const auto& item) {
        return item.second.peer_id == peer_id && item.second.request_id != 0;
    });
}

}  // namespace afd::test
