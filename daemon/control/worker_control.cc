// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/worker_control.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <latch>
#include <mutex>
#include <utility>

#include "daemon/config/wire_choices.h"
#include "daemon/control/admitted_request.h"
#include "daemon/control/control_channel.h"
#include "daemon/control/event_batch.h"
#include "daemon/control/first_contact.h"
#include "daemon/control/flush_retry.h"
#include "daemon/control/round_segments.h"
#include "daemon/loop/event_loop.h"
#include "daemon/program/logging.h"
#include "proto/crash_point.h"
#include "schedule/wait/doorbell.h"

namespace afd::daemon {

namespace {

using Clock = std::chrono::steady_clock;

// A step yields at most a few micro-batches of prompt logprobs, one event each.
constexpr size_t kEventCapacity = 16384;
// With this much unsent the ring is left to fill, and the data thread stops scheduling.
constexpr size_t kUnsentBytesMax = size_t{4} << 20;
constexpr uint64_t kFinishTimeoutMs = 3000;
constexpr uint64_t kReportMs = 1000;

void swallow(int fd) {
    uint64_t count = 0;
    while (::read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
}

}  // namespace

// Everything below `posts` belongs to the control thread once it runs.
struct WorkerControl::State {
    explicit State(ControlChannel connected) : channel(std::move(connected)) {}

    void run();
    void on_socket(int events);
    void on_post();
    void take(const control::SupervisorMessage& message);
    void admit(const control::Admit& admit);
    void take_segments(const control::SegmentAnswer& answer);
    void command(WorkerCommand next);
    void retry_commands();
    void note_place(const control::Place& place);
    void post(control::WorkerMessage message);
    void queue_posts();
    void send_report();
    void queue_events(EventBatch& batch);
    void drain_events();
    void send();
    [[noreturn]] void afdd_is_gone(const std::string& why);

    control::Role role = control::ROLE_UNSPECIFIED;
    control::Welcome welcome;
    std::vector<UniqueFd> fds;
    std::vector<int> peer_fds;
    std::map<std::string, int> segment_fds;
    std::unique_ptr<schedule::UcxAddressBook> places;
    // Written before Ready is posted; no Admit comes before that.
    Vocabulary vocabulary;
    model::GrammarCache grammars;  // The control thread's.
    std::unique_ptr<WorkerPort> port;
    std::thread thread;
    UniqueFd post_fd;
    std::latch has_loop{1};  // Opened when the control thread has made all its descriptors.

    // From the main thread to the control thread; both rare.
    std::mutex posts_mutex;
    std::vector<control::WorkerMessage> posts;
    bool finish_posted = false;

    uint64_t answer_timeout_ms = 0;
    std::promise<control::Voided> voided;
    bool is_told = false;  // The control thread's: `voided` has its value.

    std::mutex report_mutex;
    Report report;  // Called under the mutex.

    ControlChannel channel;
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<FdWatcher> socket_watcher;
    std::unique_ptr<FdWatcher> wake_watcher;
    std::unique_ptr<FdWatcher> post_watcher;
    std::unique_ptr<Timer> finish_timer;
    std::unique_ptr<Timer> retry_timer;
    std::unique_ptr<FlushRetry> flush_retry;
    std::unique_ptr<Timer> report_timer;
    std::deque<WorkerCommand> held_commands;
    bool finishing = false;
    bool shutdown_received = false;
};

WorkerControl::WorkerControl(std::unique_ptr<State> state) : state_(std::move(state)) {}

WorkerControl::~WorkerControl() {
    if (state_->thread.joinable()) finish();
}

Result<std::unique_ptr<WorkerControl>> WorkerControl::connect(const Options& options) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(options.handshake_timeout_ms);
    AFD_ASSIGN(UniqueFd socket, connect_to_afdd(options.control_socket));
    AFD_CRASH_POINT("start.connected");
    auto state = std::make_unique<State>(ControlChannel(std::move(socket)));
    state->role = options.role;
    state->answer_timeout_ms = options.handshake_timeout_ms;

    AFD_ASSIGN(state->welcome, say_hello(state->channel, options.role, options.index, deadline));
    const size_t num_fds = state->welcome.num_fds();
    const auto num_segments = static_cast<size_t>(state->welcome.segments_size());
    AFD_ASSIGN(state->fds, state->channel.take_fds(num_fds));
    const size_t num_doorbells = num_fds - num_segments;
    for (size_t i = 1; i < num_doorbells; ++i) state->peer_fds.push_back(state->fds[i].get());
    for (size_t i = 0; i < num_segments; ++i) {
        state->segment_fds[state->welcome.segments(static_cast<int>(i))] =
            state->fds[num_doorbells + i].get();
    }
    if (state->welcome.has_ucx()) {
        const control::Geometry& geometry = state->welcome.geometry();
        state->places = std::make_unique<schedule::UcxAddressBook>(geometry.num_sessions(),
                                                                   geometry.num_ffn_workers());
        for (const control::Place& place : state->welcome.ucx().places()) state->note_place(place);
    }
    // An Admit and a Cancel for each sequence, twice over. What does not fit is held and tried
    // again.
    const size_t command_capacity = 4 * size_t{state->welcome.max_sequences()} + 16;
    // Behind what the steps yield, an end for each sequence.
    const size_t event_capacity = kEventCapacity + state->welcome.max_sequences();
    state->port =
        std::make_unique<WorkerPort>(event_capacity, command_capacity, state->fds[0].get());
    state->post_fd.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    AFD_ASSERT(state->post_fd.valid(), "eventfd: %s", std::strerror(errno));
    return std::unique_ptr<WorkerControl>(new WorkerControl(std::move(state)));
}

const control::Welcome& WorkerControl::welcome() const {
    return state_->welcome;
}
int WorkerControl::own_doorbell_fd() const {
    return state_->fds[0].get();
}
std::span<const int> WorkerControl::peer_doorbell_fds() const {
    return state_->peer_fds;
}
const std::map<std::string, int>& WorkerControl::segment_fds() const {
    return state_->segment_fds;
}
WorkerPort& WorkerControl::port() {
    return *state_->port;
}

schedule::UcxAddressBook* WorkerControl::places() const {
    return state_->places.get();
}

void WorkerControl::set_vocabulary(std::shared_ptr<const model::VocabularyTrie> vocabulary) {
    state_->vocabulary = std::move(vocabulary);
}

void WorkerControl::start() {
    state_->thread = std::thread([state = state_.get()] { state->run(); });
    state_->has_loop.wait();
}

void WorkerControl::ready(const control::Ready& ready) {
    control::WorkerMessage message;
    *message.mutable_ready() = ready;
    state_->post(std::move(message));
}

Result<control::Voided> WorkerControl::ask_voided() {
    control::WorkerMessage message;
    message.mutable_loaded();
    state_->post(std::move(message));
    const std::chrono::milliseconds timeout(state_->answer_timeout_ms);
    std::future<control::Voided> answer = state_->voided.get_future();
    if (answer.wait_for(timeout) == std::future_status::ready) return answer.get();
    return Error{Code::kDeadlineExceeded,
                 "this worker has its weights, and afdd has not said within " +
                     std::to_string(timeout.count()) + " ms what is voided; is afdd stopped?"};
}

void WorkerControl::listens(std::span<const std::byte> address) {
    control::WorkerMessage message;
    message.mutable_listening()->set_address(address.data(), address.size());
    state_->post(std::move(message));
}

void WorkerControl::set_report(Report report) {
    {
        const std::lock_guard lock(state_->report_mutex);
        state_->report = std::move(report);
    }
    schedule::ring(state_->post_fd.get());
}

void WorkerControl::fail(const Error& error) {
    log::error("{}", error.message);
    control::WorkerMessage message;
    message.mutable_fatal()->set_code(static_cast<uint32_t>(error.code));
    message.mutable_fatal()->set_message(error.message);
    {
        const std::lock_guard lock(state_->posts_mutex);
        state_->posts.push_back(std::move(message));
    }
    if (state_->thread.joinable()) finish();
    // No destructors: the data thread may be in the middle of anything.
    std::_Exit(kExitWorkerFailed);
}

void WorkerControl::finish() {
    {
        const std::lock_guard lock(state_->posts_mutex);
        state_->finish_posted = true;
    }
    schedule::ring(state_->post_fd.get());
    state_->thread.join();
}

void WorkerControl::State::run() {
    loop = std::make_unique<EventLoop>();
    socket_watcher =
        std::make_unique<FdWatcher>(*loop, channel.fd(), [this](int events) { on_socket(events); });
    wake_watcher = std::make_unique<FdWatcher>(
        *loop, port->wake_fd(), [this](int /*events*/) { drain_events(); });
    post_watcher =
        std::make_unique<FdWatcher>(*loop, post_fd.get(), [this](int /*events*/) { on_post(); });
    retry_timer = std::make_unique<Timer>(*loop, [this] { retry_commands(); });
    flush_retry = std::make_unique<FlushRetry>(*loop, [this] { drain_events(); });
    finish_timer = std::make_unique<Timer>(*loop, [this] { loop->stop(); });
    report_timer = std::make_unique<Timer>(*loop, [this] { send_report(); });
    socket_watcher->watch(UV_READABLE);
    wake_watcher->watch(UV_READABLE);
    post_watcher->watch(UV_READABLE);
    has_loop.count_down();
    // Messages may have come with the Welcome.
    on_socket(UV_READABLE);
    loop->run();
    socket_watcher.reset();
    wake_watcher.reset();
    post_watcher.reset();
    retry_timer.reset();
    flush_retry.reset();
    finish_timer.reset();
    report_timer.reset();
    loop.reset();
}

void WorkerControl::State::on_socket(int events) {
    if ((events & UV_READABLE) != 0) {
        const Result<> read = channel.read();
        control::SupervisorMessage message;
        while (true) {
            const Result<bool> next = channel.next(message);
            if (!next.ok()) afdd_is_gone(next.error().message);
            if (!next.value()) break;
            take(message);
        }
        if (!read.ok()) afdd_is_gone(read.error().message);
    }
    if ((events & UV_WRITABLE) != 0) drain_events();
}

void WorkerControl::State::take(const control::SupervisorMessage& message) {
    WorkerCommand next;
    if (message.has_admit()) {
        admit(message.admit());
    } else if (message.has_cancel()) {
        next.kind = WorkerCommand::Kind::kCancel;
        next.sequence_id = message.cancel().sequence_id();
        command(std::move(next));
    } else if (message.has_segment()) {
        take_segments(message.segment());
    } else if (message.has_place()) {
        note_place(message.place());
    } else if (message.has_rank_state()) {
        next.kind = WorkerCommand::Kind::kRankState;
        next.rank = message.rank_state().rank();
        next.is_lost = message.rank_state().lost();
        command(std::move(next));
    } else if (message.has_void_answer()) {
        next.kind = WorkerCommand::Kind::kVoidAnswer;
        next.rank = message.void_answer().rank();
        next.micro_batch = message.void_answer().micro_batch();
        next.round = message.void_answer().round();
        next.is_granted = message.void_answer().granted();
        command(std::move(next));
    } else if (message.has_voided()) {
        if (!std::exchange(is_told, true)) voided.set_value(message.voided());
    } else if (message.has_log_level()) {
        if (!set_log_level(message.log_level().level())) {
            log::warn("afdd asks for the log level '{}', which is not known here",
                      message.log_level().level());
        }
    } else if (message.has_shutdown()) {
        shutdown_received = true;
        command(std::move(next));
    }
}

void WorkerControl::State::take_segments(const control::SegmentAnswer& answer) {
    WorkerCommand next;
    next.kind = WorkerCommand::Kind::kSegment;
    next.rank = answer.rank();
    next.session = answer.session();
    next.round = answer.round();
    next.code = static_cast<Code>(answer.code());
    if (next.code == Code::kOk) {
        const auto taken = channel.take_fds(num_round_fds(answer));
        if (!taken.ok()) afdd_is_gone(taken.error().message);
        auto segments = map_round_segments(taken.value(), role, welcome.segment_prefix(), answer);
        if (segments.ok()) {
            next.segments =
                std::make_unique<schedule::TwoPhaseRoundSegments>(std::move(segments).value());
        } else {
            log::warn("{}; the batch goes through the windows", segments.error().message);
            next.code = segments.error().code;
        }
    }
    command(std::move(next));
}

void WorkerControl::State::admit(const control::Admit& admit) {
    auto request = to_request(admit, vocabulary, grammars);
    if (request.ok()) {
        WorkerCommand next;
        next.kind = WorkerCommand::Kind::kAdmit;
        next.sequence_id = admit.sequence_id();
        next.sequence = std::move(request).value();
        command(std::move(next));
        return;
    }
    // The data thread never hears of it.
    control::WorkerMessage message;
    control::EndEvent& end = *message.mutable_events()->add_ends();
    end.set_sequence_id(admit.sequence_id());
    end.set_code(static_cast<uint32_t>(request.error().code));
    end.set_message(request.error().message);
    channel.queue(message);
    send();
}

void WorkerControl::State::command(WorkerCommand next) {
    held_commands.push_back(std::move(next));
    retry_commands();
}

void WorkerControl::State::retry_commands() {
    while (!held_commands.empty() && port->push_command(std::move(held_commands.front()))) {
        held_commands.pop_front();
    }
    constexpr uint64_t kRetryMs = 5;
    if (!held_commands.empty()) retry_timer->start(kRetryMs);
}

void WorkerControl::State::note_place(const control::Place& place) {
    if (places == nullptr) return;
    const auto bytes = std::as_bytes(std::span(place.address()));
    places->set(role_of(place.role()),
                place.index(),
                {.epoch = place.epoch(), .address = {bytes.begin(), bytes.end()}});
}

// From the main thread.
void WorkerControl::State::post(control::WorkerMessage message) {
    const std::lock_guard lock(posts_mutex);
    posts.push_back(std::move(message));
    schedule::ring(post_fd.get());
}

void WorkerControl::State::queue_posts() {
    const std::lock_guard lock(posts_mutex);
    if (posts.empty()) return;
    for (const control::WorkerMessage& message : posts) channel.queue(message);
    posts.clear();
    AFD_CRASH_POINT("start.ready_queued");
}

void WorkerControl::State::send_report() {
    control::WorkerMessage message;
    {
        const std::lock_guard lock(report_mutex);
        if (!report) return;
        message = report();
    }
    report_timer->start(kReportMs);
    // While afdd does not take what is here, the next one will do.
    if (channel.queued_bytes() > kUnsentBytesMax) return;
    channel.queue(message);
    send();
}

void WorkerControl::State::queue_events(EventBatch& batch) {
    // After the events were popped and before they leave. The acquire of SpscRing::pop(), whose
    // partner is the release of its push(), shows what their thread posted before it pushed them:
    // a look before the pop could miss a Ready and still find what follows it
    // (docs/protocol/control.pml, NO_ORDER).
    queue_posts();
    batch.queue_on(channel);
}

void WorkerControl::State::drain_events() {
    send();
    // While afdd does not take what is here, the ring fills and the data thread holds back; the
    // socket watcher comes back here when the socket is writable.
    port->begin_drain();
    EventBatch batch;
    bool is_full = false;
    do {
        WorkerEvent event;
        while (channel.queued_bytes() <= kUnsentBytesMax && port->pop_event(event)) {
            batch.add(event);
            if (batch.is_full()) queue_events(batch);
        }
        queue_events(batch);
        AFD_CRASH_POINT("emit.events_queued");
        is_full = channel.queued_bytes() > kUnsentBytesMax;
    } while (!is_full && !port->rest());
    send();
    // The socket has taken all of it at once: it will not tell that there is room.
    if (is_full && !channel.wants_write()) schedule::ring(post_fd.get());
}

void WorkerControl::State::on_post() {
    swallow(post_fd.get());
    {
        const std::lock_guard lock(posts_mutex);
        finishing = finish_posted;
    }
    // Also without an event; and before the first send(), which ends a loop that finishes.
    queue_posts();
    if (!report_timer->is_active()) send_report();
    drain_events();
    if (finishing && !finish_timer->is_active()) finish_timer->start(kFinishTimeoutMs);
}

void WorkerControl::State::send() {
    const Result<> sent = channel.flush();
    if (!sent.ok()) afdd_is_gone(sent.error().message);
    socket_watcher->watch(UV_READABLE | flush_retry->after(channel));
    // What is left in the ring leaves before, a batch at a time.
    if (finishing && !channel.wants_write() && !port->has_event()) loop->stop();
}

void WorkerControl::State::afdd_is_gone(const std::string& why) {
    if (shutdown_received || finishing) std::_Exit(0);
    log::error("afdd is gone ({}); this worker ends too", why);
    std::_Exit(kExitAfddGone);
}

}  // namespace afd::daemon
