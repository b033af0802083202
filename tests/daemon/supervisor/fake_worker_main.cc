// SPDX-License-Identifier: Apache-2.0
//
// A worker without a model, for tests of afdd: it speaks the whole control protocol through
// WorkerControl, and its tokens are a function of seed and position, so a replay must give the
// same text. Built twice, under the names of the two worker programs.
//
//   AFD_FAKE_TOKEN_MS   time per token
//   AFD_FAKE_FAIL       end with this message before being ready
//   AFD_FAKE_CRASH      abort before being ready
//   AFD_FAKE_DIE        abort as soon as it is ready
//   AFD_FAKE_DEADLY     attention: abort when it is given a sequence with this token
//   AFD_FAKE_HANG       wait before being ready, until this file exists, as if there were weights
//   AFD_FAKE_VOID       attention: have round 5 voided at each rank that is lost, round 6 at one
//                       that is back, and report the answer as a wait; FFN: report what is voided
//   AFD_FAKE_WAIT       attention: report a wait for each rank that is lost, as if it were idle
//   AFD_FAKE_ASK        ask for the memory of round 7 of this session, be ready only after the
//                       answer, and report it as a wait
//   AFD_FAKE_CORES      report the cores of the Welcome as a wait, and UCX's devices as another
//   AFD_FAKE_NONSENSE   attention: be ready, and then send what is no frame
//   AFD_FAKE_LONG_WAIT  attention: be ready, and report a wait whose texts have so many bytes
//   AFD_FAKE_FLOOD      FFN: ask for the memory of round 7 for ever, and read nothing

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>

#include "daemon/control/control_channel.h"
#include "daemon/control/first_contact.h"
#include "daemon/control/worker_control.h"
#include "daemon/control/worker_options.h"
#include "daemon/program/logging.h"
#include "tests/daemon/attention/fake_token.h"

namespace afd::daemon {
namespace {

int number_from(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? 0 : std::atoi(text);
}

// What a kSegment says.
std::string text_of(const WorkerCommand& command) {
    if (command.segments == nullptr) return std::string(code_name(command.code));
    return std::to_string(command.segments->receive.size()) + " and " +
           std::to_string(command.segments->results.size()) + " bytes";
}

class FakeLoop {
  public:
    explicit FakeLoop(WorkerControl& control) : control_(control), port_(control.port()) {}

    void run() {
        const int token_ms = number_from("AFD_FAKE_TOKEN_MS");
        while (take_commands()) {
            for (auto it = running_.begin(); it != running_.end();) {
                step(*(it++)->second);
            }
            port_.flush();
            pollfd doorbell{control_.own_doorbell_fd(), POLLIN, 0};
            ::poll(&doorbell, 1, running_.empty() ? -1 : token_ms);
            uint64_t count = 0;
            if (::read(doorbell.fd, &count, sizeof(count)) < 0) continue;
        }
    }

  private:
    bool take_commands() {
        WorkerCommand command;
        while (port_.pop_command(command)) {
            switch (command.kind) {
                case WorkerCommand::Kind::kShutdown:
                    return false;
                case WorkerCommand::Kind::kCancel:
                    if (running_.contains(command.sequence_id)) {
                        end(*running_.at(command.sequence_id), Code::kCancelled);
                    }
                    break;
                case WorkerCommand::Kind::kAdmit:
                    if (is_deadly(*command.sequence)) std::abort();
                    push(WorkerEvent::Kind::kStarted, *command.sequence);
                    running_[command.sequence_id] = std::move(command.sequence);
                    break;
                case WorkerCommand::Kind::kRankState:
                    if (std::getenv("AFD_FAKE_VOID") != nullptr) ask_to_void(command);
                    if (std::getenv("AFD_FAKE_WAIT") != nullptr) wait_for(command);
                    break;
                case WorkerCommand::Kind::kVoidAnswer:
                    report("round %d at rank %u is %s",
                           command.round,
                           command.rank,
                           command.is_granted ? "void" : "not void");
                    break;
                case WorkerCommand::Kind::kSegment:
                    report("round %d at rank %u: %s",
                           command.round,
                           command.rank,
                           text_of(command).c_str());
                    break;
            }
        }
        return true;
    }

    static bool is_deadly(const SequenceRequest& sequence) {
        const auto token = static_cast<uint32_t>(number_from("AFD_FAKE_DEADLY"));
        return token != 0 && std::find(sequence.tokens.begin(), sequence.tokens.end(), token) !=
                                 sequence.tokens.end();
    }

    void ask_to_void(const WorkerCommand& state) {
        WorkerEvent event{.kind = WorkerEvent::Kind::kVoidRequest};
        event.voidable = {state.rank, 1, state.is_lost ? 5 : 6};
        port_.push(std::move(event));
    }

    void wait_for(const WorkerCommand& state) {
        if (!state.is_lost) return;
        WorkerEvent event{.kind = WorkerEvent::Kind::kWait};
        event.set_wait("it waits", state.rank, "the peer is idle");
        port_.push(std::move(event));
    }

    template <typename... Args>
    void report(const char* format, Args... args) {
        WorkerEvent event{.kind = WorkerEvent::Kind::kWait};
        event.set_text(format, args...);
        port_.push(std::move(event));
    }

    void step(SequenceRequest& sequence) {
        const auto position = static_cast<uint32_t>(sequence.tokens.size());
        sequence.tokens.push_back(fake_token(sequence.sampling.seed, position));
        push(WorkerEvent::Kind::kToken, sequence);
        if (sequence.tokens.size() == sequence.max_total_tokens) end(sequence, Code::kOk);
    }

    void end(SequenceRequest& sequence, Code code) {
        auto running = running_.extract(sequence.sequence_id);
        WorkerEvent event;
        event.kind = WorkerEvent::Kind::kEnd;
        event.sequence_id = sequence.sequence_id;
        event.code = code;
        event.sequence = std::move(running.mapped());
        port_.push(std::move(event));
    }

    void push(WorkerEvent::Kind kind, const SequenceRequest& sequence) {
        WorkerEvent event;
        event.kind = kind;
        event.sequence_id = sequence.sequence_id;
        event.token = sequence.tokens.back();
        port_.push(std::move(event));
    }

    WorkerControl& control_;
    WorkerPort& port_;
    std::map<uint64_t, std::unique_ptr<SequenceRequest>> running_;
};

// Until afdd has answered.
void ask_for_segments(WorkerControl& worker) {
    WorkerPort& port = worker.port();
    WorkerEvent request{.kind = WorkerEvent::Kind::kSegmentRequest};
    const char* session = std::getenv("AFD_FAKE_ASK");
    request.segment = {
        session == nullptr ? 0U : static_cast<uint32_t>(std::atoi(session)), 7, 4096, 512};
    port.push(std::move(request));
    port.flush();
    WorkerCommand answer;
    while (true) {
        bool has_answer = port.pop_command(answer);
        // Of ranks an attention worker hears at any time, and one ring may be for both.
        while (has_answer && answer.kind == WorkerCommand::Kind::kRankState) {
            has_answer = port.pop_command(answer);
        }
        if (has_answer) break;
        pollfd doorbell{worker.own_doorbell_fd(), POLLIN, 0};
        ::poll(&doorbell, 1, -1);
        uint64_t count = 0;
        if (::read(doorbell.fd, &count, sizeof(count)) < 0) continue;
    }
    // afdd gave up instead of answering.
    if (answer.kind != WorkerCommand::Kind::kSegment) std::_Exit(0);
    WorkerEvent report{.kind = WorkerEvent::Kind::kWait};
    report.set_text(
        "round %d of session %u: %s", answer.round, answer.session, text_of(answer).c_str());
    port.push(std::move(report));
    port.flush();
}

// Asks for memory again and again and reads nothing, until it is killed.
int flood(const WorkerControl::Options& options) {
    ControlChannel channel(connect_to_afdd(options.control_socket).value());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    if (!say_hello(channel, options.role, options.index, deadline).ok()) return 1;
    control::WorkerMessage message;
    message.mutable_segment_request()->set_round(7);
    message.mutable_segment_request()->set_receive_bytes(4096);
    message.mutable_segment_request()->set_return_bytes(512);
    do {
        pollfd entry{channel.fd(), POLLOUT, 0};
        ::poll(&entry, 1, -1);
        if (!channel.wants_write()) channel.queue(message);
    } while (channel.flush().ok());
    return 0;
}

// Queues that it is ready; false: afdd does not want it.
bool get_ready(ControlChannel& channel, const WorkerControl::Options& options) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    if (!say_hello(channel, options.role, options.index, deadline).ok()) return false;
    control::WorkerMessage message;
    message.mutable_ready()->set_kv_tokens(4096);
    channel.queue(message);
    return true;
}

// Is ready, reports a wait of so many bytes, and waits for its end.
int report_long_wait(const WorkerControl::Options& options) {
    ControlChannel channel(connect_to_afdd(options.control_socket).value());
    if (!get_ready(channel, options)) return 1;
    const auto num_bytes = static_cast<size_t>(number_from("AFD_FAKE_LONG_WAIT"));
    control::WorkerMessage message;
    message.mutable_wait()->set_text(std::string(num_bytes, 't'));
    message.mutable_wait()->set_peer(std::string(num_bytes, 'p'));
    channel.queue(message);
    do {
        pollfd entry{channel.fd(), POLLOUT, 0};
        ::poll(&entry, 1, -1);
        if (!channel.flush().ok()) return 1;
    } while (channel.wants_write());
    for (;;) ::pause();
}

// Is ready, sends what is no frame, and waits for its end.
int talk_nonsense(const WorkerControl::Options& options) {
    ControlChannel channel(connect_to_afdd(options.control_socket).value());
    if (!get_ready(channel, options) || !channel.flush().ok()) return 1;
    const std::string nonsense(64, '\xff');
    if (::send(channel.fd(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL) < 0) return 1;
    for (;;) ::pause();
}

// What afdd says is voided.
void report_voided(WorkerControl& worker) {
    const auto told = worker.ask_voided();
    if (!told.ok()) worker.fail(told.error());
    for (const control::VoidedRound& voided : told.value().rounds()) {
        WorkerEvent event{.kind = WorkerEvent::Kind::kWait};
        event.set_text("session %u, micro-batch %u: round %d is void",
                       voided.session(),
                       voided.micro_batch(),
                       voided.round());
        worker.port().push(std::move(event));
    }
    worker.port().flush();
}

// "devices: lo" and "cores: 0 1", as the Welcome says.
void report_cores(WorkerControl& worker) {
    std::string cores = "cores:";
    for (const uint32_t core : worker.welcome().cpus()) cores += " " + std::to_string(core);
    for (const std::string& text : {"devices: " + worker.welcome().ucx().devices(), cores}) {
        WorkerEvent event{.kind = WorkerEvent::Kind::kWait};
        event.set_text("%s", text.c_str());
        worker.port().push(std::move(event));
    }
    worker.port().flush();
}

int run(int argc, char** argv) {
    int exit_code = 0;
    const auto options = parse_worker_options(argc, argv, AFD_FAKE_ROLE, &exit_code);
    if (!options) return exit_code;
    set_up_logging(std::string("fake-") + AFD_FAKE_ROLE, options->log_level, options->log_format);
    WorkerControl::Options connect;
    connect.role = std::string(AFD_FAKE_ROLE) == "ffn" ? control::FFN : control::ATTENTION;
    connect.index = options->index;
    connect.control_socket = options->control_socket;
    if (connect.role == control::FFN && std::getenv("AFD_FAKE_FLOOD") != nullptr) {
        return flood(connect);
    }
    if (connect.role == control::ATTENTION && std::getenv("AFD_FAKE_LONG_WAIT") != nullptr) {
        return report_long_wait(connect);
    }
    if (connect.role == control::ATTENTION && std::getenv("AFD_FAKE_NONSENSE") != nullptr) {
        return talk_nonsense(connect);
    }
    auto control = WorkerControl::connect(connect);
    if (!control.ok()) {
        std::fprintf(stderr, "fake worker: %s\n", control.error().message.c_str());
        return 1;
    }
    WorkerControl& worker = *control.value();
    worker.start();
    if (std::getenv("AFD_FAKE_CRASH") != nullptr) std::abort();
    if (const char* why = std::getenv("AFD_FAKE_FAIL")) worker.fail({Code::kDataLoss, why});
    if (const char* file = std::getenv("AFD_FAKE_HANG")) {
        while (::access(file, F_OK) != 0) ::poll(nullptr, 0, 10);
    }
    if (std::getenv("AFD_FAKE_ASK") != nullptr) ask_for_segments(worker);
    if (connect.role == control::FFN) report_voided(worker);
    if (std::getenv("AFD_FAKE_CORES") != nullptr) report_cores(worker);
    control::Ready ready;
    ready.set_kv_tokens(worker.welcome().kv_tokens());
    worker.ready(ready);
    if (std::getenv("AFD_FAKE_DIE") != nullptr) {
        // Its Ready has left when afdd answers something that was asked behind it.
        ask_for_segments(worker);
        std::abort();
    }
    FakeLoop(worker).run();
    worker.finish();
    return 0;
}

}  // namespace
}  // namespace afd::daemon

int main(int argc, char** argv) {
    // A core of each that aborts would take longer than the tests wait.
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_CORE, &none) != 0) return 1;
    return afd::daemon::run(argc, argv);
}
