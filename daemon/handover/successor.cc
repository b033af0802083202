// SPDX-License-Identifier: Apache-2.0
#include "daemon/handover/successor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/failure.h"

namespace afd::daemon {

namespace {

// Of a process whose socket is closed.
constexpr uint64_t kEndMs = 2000;

// What the kernel cannot start would be given to a shell (execvp), which says nothing of use.
Result<> check_program(const std::string& file) {
    if (file.find('/') == std::string::npos) return {};  // Looked for in PATH.
    const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    // One that may be run need not be readable.
    if (!opened.valid()) return {};
    std::array<char, 4> start{};
    const ssize_t size = ::read(opened.get(), start.data(), start.size());
    const std::string_view read(start.data(), size < 0 ? 0 : static_cast<size_t>(size));
    if (read ==
            "\x7f"
            "ELF" ||
        read.starts_with("#!"))
        return {};
    return invalid_argument("cannot start '{}': it is no program and no script", with(file));
}

Result<std::vector<UniqueFd>> copies_of(const std::vector<int>& fds) {
    std::vector<UniqueFd> copies;
    for (const int fd : fds) {
        copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
        if (copies.back().valid()) continue;
        return unavailable("cannot copy descriptor {} for the new afdd: {}",
                           with(fd, std::strerror(errno)));
    }
    return copies;
}

}  // namespace

Successor::Successor(EventLoop& loop,
                     UniqueFd socket,
                     SuccessorListener& listener,
                     uint64_t silence_max_ms)
    : listener_(listener),
      silence_max_ms_(silence_max_ms),
      channel_(std::move(socket)),
      silence_(loop, [this] { on_silence(); }),
      wire_(std::make_unique<HandoverWire>(
          loop,
          channel_,
          [this] { return take_messages(); },
          [this](const Error& error) {
              if (said_.empty() && error.code != Code::kUnavailable) said_ = error.message;
              // The end of its process is on its way, and says more. It may have closed nothing but
              // its socket.
              silence_.start(kEndMs);
          })) {}

Result<std::unique_ptr<Successor>> Successor::start(EventLoop& loop,
                                                    Start start,
                                                    SuccessorListener& listener) {
    AFD_TRY(check_program(start.command_line.front()));
    AFD_ASSIGN(std::vector<UniqueFd> copies, copies_of(start.fds));
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return Error{Code::kUnavailable,
                     std::string("cannot make a socket pair: ") + std::strerror(errno)};
    }
    const UniqueFd its_end(ends[1]);
    std::unique_ptr<Successor> successor(
        new Successor(loop, UniqueFd(ends[0]), listener, start.silence_max_ms));
    start.environment.push_back(fmt::format("{}={}", kVariable, ChildProcess::kInheritedFd));
    AFD_ASSIGN(
        successor->process_,
        ChildProcess::start(
            loop,
            {.executable = start.command_line.front(),
             .arguments = {start.command_line.begin() + 1, start.command_line.end()},
             .environment = std::move(start.environment),
             .inherited = its_end.get()},
            [self = successor.get()](const ProcessEnd& end) { self->on_process_gone(end); }));
    handover::ToNew message;
    *message.mutable_offer() = std::move(start.offer);
    message.mutable_offer()->set_version(kHandoverVersion);
    successor->wire_->send(message, std::move(copies));
    successor->hear();
    return successor;
}

Result<> Successor::take_messages() {
    while (true) {
        handover::ToOld message;
        AFD_ASSIGN(const bool has_come, channel_.next(message));
        if (!has_come) return {};
        AFD_TRY(on_message(message));
    }
}

Result<> Successor::on_message(const handover::ToOld& message) {
    hear();
    switch (message.body_case()) {
        case handover::ToOld::kProgress:
            // A sign of life has no text.
            if (!message.progress().text().empty()) {
                listener_.on_progress(message.progress().text());
            }
            return {};
        case handover::ToOld::kReady:
            if (std::exchange(is_ready_, true)) break;
            silence_.stop();
            // Whoever has ended serves nobody: the end of its process says why.
            if (!is_gone_ && !wire_->is_at_end()) listener_.on_ready(message.ready());
            return {};
        case handover::ToOld::kFailed:
            said_ = message.failed().message();
            return {};
        case handover::ToOld::kEnding:
            is_ending_ = true;
            return {};
        case handover::ToOld::BODY_NOT_SET:
            break;
    }
    return Error{Code::kDataLoss, "it says something that makes no sense here"};
}

void Successor::on_process_gone(const ProcessEnd& end) {
    is_gone_ = true;
    // What it has said last may not have been read.
    static_cast<void>(channel_.read());
    static_cast<void>(take_messages());
    listener_.on_gone(said_.empty() ? "it ended (" + end.text() + "); the log may have the reason"
                                    : said_);
}

void Successor::hear() {
    if (!is_ready_ && silence_max_ms_ > 0) silence_.start(silence_max_ms_);
}

void Successor::on_silence() {
    const std::string silent =
        wire_->is_at_end() ? "it closed its connection to this afdd"
                           : fmt::format("it has given no sign of life for start_timeout_ms = {}",
                                         silence_max_ms_);
    if (said_.empty()) said_ = silent;
    kill();
}

void Successor::go() {
    handover::ToNew message;
    message.mutable_go();
    wire_->send(message);
}

void Successor::take(HandedConnection connection) {
    const auto send_parts = [this](std::string_view bytes, auto set) {
        for (; !bytes.empty();
             bytes.remove_prefix(std::min(bytes.size(), HandoverWire::kPartBytes))) {
            handover::ToNew message;
            set(*message.mutable_part(), std::string(bytes.substr(0, HandoverWire::kPartBytes)));
            wire_->send(message);
        }
    };
    send_parts(connection.unread,
               [](handover::Part& part, std::string bytes) { part.set_unread(std::move(bytes)); });
    send_parts(connection.unsent,
               [](handover::Part& part, std::string bytes) { part.set_unsent(std::move(bytes)); });
    handover::ToNew message;
    message.mutable_connection()->set_door(std::string(connection.door));
    std::vector<UniqueFd> socket;
    socket.push_back(std::move(connection.socket));
    wire_->send(message, std::move(socket));
}

void Successor::take(HandedStream stream) {
    handover::ToNew part;
    size_t part_bytes = 0;
    for (std::string& chunk : stream.chunks) {
        part_bytes += chunk.size();
        part.mutable_part()->add_chunks(std::move(chunk));
        if (part_bytes < HandoverWire::kPartBytes) continue;
        wire_->send(part);
        part.Clear();
        part_bytes = 0;
    }
    if (part.has_part()) wire_->send(part);
    handover::ToNew message;
    handover::Stream& sent = *message.mutable_stream();
    sent.set_id(std::move(stream.id));
    sent.set_account(std::move(stream.account));
    sent.set_name(std::move(stream.name));
    *sent.mutable_accepted() = std::move(stream.accepted);
    *sent.mutable_end() = std::move(stream.end);
    sent.set_first_place(stream.first_place);
    sent.set_num_tokens_before(stream.num_tokens_before);
    sent.set_grace_ms(stream.grace_ms);
    sent.set_form(std::move(stream.form));
    sent.set_is_unheard(stream.is_unheard);
    wire_->send(message);
}

void Successor::tell(const handover::Remaining& remaining) {
    handover::ToNew message;
    *message.mutable_remaining() = remaining;
    wire_->send(message);
}

}  // namespace afd::daemon
