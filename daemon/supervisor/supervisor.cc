// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/supervisor.h"

#include <algorithm>
#include <string_view>

#include "daemon/program/logging.h"
#include "daemon/supervisor/slot_settings.h"
#include "proto/failure.h"
#include "proto/state_names.h"

namespace afd::daemon {

namespace {

// How often to look at the heartbeats, so that a time-out is kept to about a quarter; 0: never.
uint64_t heartbeat_period_ms(const Config& config) {
    uint64_t shortest_ms = 0;
    for (const uint64_t timeout_ms : {config.hang_timeout_ms, config.stop_timeout_ms}) {
        if (timeout_ms == 0) continue;
        shortest_ms = shortest_ms == 0 ? timeout_ms : std::min(shortest_ms, timeout_ms);
    }
    if (shortest_ms == 0) return 0;
    return std::clamp<uint64_t>(shortest_ms / 4, 250, HangDetector::kPeriodMsMax);
}

std::string_view state_name(ServiceState::Level level) {
    switch (level) {
        case ServiceState::Level::kReady:
            return kInstanceReady;
        case ServiceState::Level::kDegraded:
            return kInstanceDegraded;
        case ServiceState::Level::kHalted:
            return kInstanceHalted;
        case ServiceState::Level::kFailed:
            return kInstanceFailed;
    }
    return "";
}

}  // namespace

Supervisor::Supervisor(EventLoop& loop, WorkerDoor& door, Plan plan)
    : loop_(loop),
      door_(door),
      plan_(std::move(plan)),
      round_memory_(loop, plan_.round_memory, attention_),
      heartbeat_timer_(loop, [this] { check_heartbeats(); }),
      grace_timer_(loop, [this] {
          for (WorkerSlot* slot : slots_) slot->kill("it did not end when asked");
      }) {}

Supervisor::~Supervisor() {
    door_.remove(*this);
}

Result<std::unique_ptr<Supervisor>> Supervisor::create(EventLoop& loop,
                                                       WorkerDoor& door,
                                                       Plan plan) {
    std::unique_ptr<Supervisor> supervisor(new Supervisor(loop, door, std::move(plan)));
    const Config& config = supervisor->plan_.config;
    AFD_ASSIGN(supervisor->doorbells_,
               Doorbells::make(config.num_attention_workers(), config.num_ffn_workers()));
    supervisor->create_slots();
    door.add(*supervisor);
    return supervisor;
}

void Supervisor::create_slots() {
    for (uint32_t i = 0; i < plan_.config.num_attention_workers(); ++i) {
        attention_.push_back(make_slot(control::ATTENTION, i));
    }
    for (uint32_t i = 0; i < plan_.config.num_ffn_workers(); ++i) {
        ffn_.push_back(make_slot(control::FFN, i));
    }
    for (const auto* slots : {&attention_, &ffn_}) {
        for (const auto& slot : *slots) slots_.push_back(slot.get());
    }
    was_ready_.assign(slots_.size(), plan_.has_predecessors);
    all_ready_ = plan_.has_predecessors;
    have_ranks_come_ = plan_.has_predecessors || ffn_.empty();
    kv_tokens_.assign(attention_.size(), 0);
}

uint64_t Supervisor::num_processes(control::Role role, uint32_t index) const {
    const auto& slots = role == control::FFN ? ffn_ : attention_;
    const auto earlier = num_earlier_.find({role, index});
    return slots[index]->num_processes() + (earlier == num_earlier_.end() ? 0 : earlier->second);
}

std::unique_ptr<WorkerSlot> Supervisor::make_slot(control::Role role, uint32_t index) {
    WorkerSlot::Settings settings = slot_settings(plan_, doorbells_, role, index);
    settings.complete_welcome = [this, role, index](control::Welcome& welcome) {
        complete_welcome(role, index, welcome);
    };
    settings.absence_of_rank = [this](uint32_t rank) {
        return rank < ffn_.size() ? ffn_[rank]->absence() : "";
    };
    return std::make_unique<WorkerSlot>(loop_, std::move(settings), *this);
}

void Supervisor::complete_welcome(control::Role role, uint32_t index, control::Welcome& welcome) {
    if (plan_.add_experts) plan_.add_experts(role, index, welcome);
    const auto& slots = role == control::FFN ? ffn_ : attention_;
    if (const std::string& host = slots[index]->host(); !host.empty()) {
        // One that has left meanwhile cannot be reached, and the stand-in says so.
        *welcome.mutable_host() = plan_.find_host(host).value_or(control::RemoteHost());
    }
    if (!welcome.has_ucx()) return;
    const uint64_t epoch = num_processes(role, index);
    welcome.mutable_ucx()->set_epoch(epoch);
    places_.fill(role, *welcome.mutable_ucx());
    tell_place(places_.begin(role, index, epoch));
}

void Supervisor::on_host_joined(const std::string& name) {
    for (WorkerSlot* slot : slots_) {
        if (slot->host() == name) slot->start();
    }
}

void Supervisor::start(AttentionListener& attention, InstanceListener& instance) {
    attention_listener_ = &attention;
    instance_listener_ = &instance;
    // FFN workers first: they have the most weights to load.
    for (auto* slots : {&ffn_, &attention_}) {
        for (auto& slot : *slots) slot->start();
    }
    const uint64_t period_ms = heartbeat_period_ms(plan_.config);
    if (period_ms != 0) heartbeat_timer_.start(period_ms, period_ms);
}

void Supervisor::hand_over(AttentionListener& attention, InstanceListener& instance) {
    attention_listener_ = &attention;
    instance_listener_ = &instance;
    for (const auto& slot : attention_) tell_ready(*slot);
    if (service_.level != ServiceState::Level::kReady) instance.on_service(service_);
}

void Supervisor::continue_counts(const Supervisor& before) {
    num_earlier_ = before.num_earlier_;
    for (const WorkerSlot* slot : before.slots_) {
        num_earlier_[{slot->role(), slot->index()}] += slot->num_processes();
    }
}

bool Supervisor::is_complete() const {
    return std::ranges::all_of(
        slots_, [](const auto* slot) { return slot->state() == WorkerSlot::State::kReady; });
}

bool Supervisor::has_processes() const {
    return std::ranges::any_of(slots_, [](const auto* slot) { return slot->has_process(); });
}

bool Supervisor::has_process(int pid) const {
    return std::ranges::any_of(slots_, [pid](const auto* slot) { return slot->pid() == pid; });
}

void Supervisor::set_run_flag(control::Role role, uint32_t index, bool runs) {
    const auto& slots = role == control::FFN ? ffn_ : attention_;
    AFD_ASSERT(index < slots.size(), "worker %u of %zu of its role", index, slots.size());
    slots[index]->set_run_flag(runs);
}

void Supervisor::send(uint32_t session, const control::SupervisorMessage& message) {
    AFD_ASSERT(session < attention_.size(), "session %u of %zu", session, attention_.size());
    attention_[session]->send(message);
}

void Supervisor::excuse_deaths() {
    for (const auto& slot : attention_) slot->excuse_deaths();
}

Result<> Supervisor::give_slot(ControlChannel& channel, const control::Hello& hello, int pid) {
    const auto& slots = hello.role() == control::FFN ? ffn_ : attention_;
    const bool known = hello.role() == control::FFN || hello.role() == control::ATTENTION;
    if (!known || hello.index() >= slots.size()) {
        return Error{Code::kInvalidArgument,
                     fmt::format("index {} is not a slot of this instance, which has {} attention "
                                 "and {} ffn workers",
                                 hello.index(),
                                 attention_.size(),
                                 ffn_.size())};
    }
    return slots[hello.index()]->take(channel, hello, pid);
}

void Supervisor::check_heartbeats() {
    // A rank that somebody waits for is needed, even while it says that it is idle.
    std::vector<bool> is_awaited(ffn_.size(), false);
    for (const auto& slot : attention_) {
        const schedule::HeartbeatView view = plan_.heartbeat(control::ATTENTION, slot->index());
        const bool waits_for_rank = view.wait.kind == schedule::WaitKind::kResults ||
                                    view.wait.kind == schedule::WaitKind::kAcknowledged ||
                                    view.wait.kind == schedule::WaitKind::kTakeover ||
                                    view.wait.kind == schedule::WaitKind::kGrant;
        const auto rank = static_cast<size_t>(view.wait.peer);
        if (waits_for_rank && rank < is_awaited.size()) is_awaited[rank] = true;
        const bool is_needed = view.state != schedule::WorkerState::kIdle ||
                               attention_listener_->num_sequences(slot->index()) > 0;
        slot->check_heartbeat(view, is_needed);
    }
    for (const auto& slot : ffn_) {
        const schedule::HeartbeatView view = plan_.heartbeat(control::FFN, slot->index());
        const bool is_needed =
            view.state != schedule::WorkerState::kIdle || is_awaited[slot->index()];
        slot->check_heartbeat(view, is_needed);
    }
}

void Supervisor::on_worker_ready(WorkerSlot& slot, const control::Ready& ready) {
    const bool is_ffn = slot.role() == control::FFN;
    log::debug("{} is ready after {} ms", slot.name(), ready.load_us() / 1000);
    send_log_level(slot);
    if (plan_.begin_counts) plan_.begin_counts(slot.role(), slot.index());
    was_ready_[is_ffn ? attention_.size() + slot.index() : slot.index()] = true;
    if (is_ffn) {
        voided_rounds_.forget(slot.index());
        tell_rank_state(slot);
        check_ranks_have_come();
    } else {
        // Before the first Admit.
        for (const auto& rank : ffn_) {
            if (rank->state() != WorkerSlot::State::kReady) send_rank_state(slot, *rank);
        }
        kv_tokens_[slot.index()] = ready.kv_tokens();
        tell_ready(slot);
    }
    check_all_ready();
    review_service();
}

// What an attention worker gets while a rank has never been there would wait for as long as a round
// may take. It waits in the queue instead, up to its own deadline.
void Supervisor::tell_ready(const WorkerSlot& session) const {
    if (!have_ranks_come_ || session.state() != WorkerSlot::State::kReady) return;
    attention_listener_->on_attention_ready(session.index(), kv_tokens_[session.index()]);
    tell_wait(session);
}

void Supervisor::check_ranks_have_come() {
    const auto first_rank = was_ready_.begin() + static_cast<ptrdiff_t>(attention_.size());
    if (have_ranks_come_ || std::find(first_rank, was_ready_.end(), false) != was_ready_.end()) {
        return;
    }
    have_ranks_come_ = true;
    for (const auto& slot : attention_) tell_ready(*slot);
}

void Supervisor::set_log_level(const std::string& level) {
    log_level_ = level;
    for (WorkerSlot* slot : slots_) send_log_level(*slot);
}

void Supervisor::send_log_level(WorkerSlot& slot) const {
    // One that is not ready yet hears it when it is.
    if (log_level_.empty() || slot.state() != WorkerSlot::State::kReady) return;
    control::SupervisorMessage message;
    message.mutable_log_level()->set_level(log_level_);
    slot.send(message);
}

void Supervisor::send_rank_state(WorkerSlot& session, const WorkerSlot& rank) {
    control::SupervisorMessage message;
    message.mutable_rank_state()->set_rank(rank.index());
    message.mutable_rank_state()->set_lost(rank.state() != WorkerSlot::State::kReady);
    session.send(message);
}

void Supervisor::tell_rank_state(const WorkerSlot& rank) {
    for (const auto& session : attention_) send_rank_state(*session, rank);
}

void Supervisor::on_worker_failing(WorkerSlot& /*slot*/) {
    review_service();
}

void Supervisor::on_worker_settled(WorkerSlot& /*slot*/) {
    review_service();
}

void Supervisor::on_worker_halted(WorkerSlot& /*slot*/) {
    review_service();
}

void Supervisor::review_service() {
    ServiceState state = service_state(attention_, ffn_, plan_.can_do_without);
    if (!all_ready_ || state == service_) return;
    service_ = std::move(state);
    for (const auto& slot : attention_) tell_wait(*slot);
    instance_listener_->on_service(service_);
}

// A session whose experts cannot be started would wait with whatever it gets.
void Supervisor::tell_wait(const WorkerSlot& session) const {
    const bool is_waiting = session.waits() || !reaches_experts(ffn_, plan_.can_do_without);
    attention_listener_->on_attention_wait(session.index(), is_waiting);
}

void Supervisor::check_all_ready() {
    if (all_ready_ || std::find(was_ready_.begin(), was_ready_.end(), false) != was_ready_.end()) {
        return;
    }
    // For good: a worker that dies from now on is started again, and its requests are replayed.
    all_ready_ = true;
    instance_listener_->on_all_ready();
}

void Supervisor::on_worker_events(WorkerSlot& slot, const control::Events& events) {
    if (slot.role() == control::ATTENTION) attention_listener_->on_events(slot.index(), events);
}

void Supervisor::on_worker_wait(WorkerSlot& slot) {
    if (slot.role() != control::ATTENTION) return;
    tell_wait(slot);
}

void Supervisor::on_segment_request(WorkerSlot& slot, const control::SegmentRequest& request) {
    round_memory_.on_request(slot, request);
}

// R13: who hears it before the process is heard of takes its connection.
void Supervisor::tell_place(const control::Place& place) {
    control::SupervisorMessage message;
    *message.mutable_place() = place;
    for (WorkerSlot* slot : slots_) {
        if (slot->role() != place.role()) slot->send(message);
    }
}

void Supervisor::on_worker_listens(WorkerSlot& slot, const control::Listening& listening) {
    const control::Place* place = nullptr;
    if (slot.role() == control::FFN && plan_.welcome.has_ucx()) {
        place = places_.listens(control::FFN, slot.index(), listening.address());
    }
    if (place != nullptr) {
        tell_place(*place);
    } else {
        slot.kill("it says where it listens, and was not to, or not again");
    }
}

void Supervisor::on_segment_release(WorkerSlot& slot, const control::SegmentRelease& release) {
    round_memory_.on_release(slot, release);
}

bool Supervisor::goes_on_without_lost_ranks() const {
    std::vector<bool> is_lost;
    for (const auto& rank : ffn_) is_lost.push_back(rank->state() != WorkerSlot::State::kReady);
    return all_ready_ && !shutting_down_ && plan_.can_do_without && plan_.can_do_without(is_lost);
}

// The rank's process is gone (R8), and its successor executes nothing before it has asked what is
// voided. Between machines one may run on, and sessions fence it off (R16).
bool Supervisor::may_void(const WorkerSlot& slot, const control::VoidRequest& request) const {
    return slot.role() == control::ATTENTION && plan_.can_do_without && !plan_.welcome.has_ucx() &&
           request.rank() < ffn_.size() && voided_rounds_.is_open(request.rank()) &&
           request.micro_batch() < plan_.welcome.geometry().num_micro_batches() &&
           request.round() > 0;
}

void Supervisor::on_void_request(WorkerSlot& slot, const control::VoidRequest& request) {
    const bool is_granted = may_void(slot, request);
    if (is_granted) voided_rounds_.note(slot.index(), request);
    control::SupervisorMessage message;
    control::VoidAnswer& answer = *message.mutable_void_answer();
    answer.set_rank(request.rank());
    answer.set_micro_batch(request.micro_batch());
    answer.set_round(request.round());
    answer.set_granted(is_granted);
    slot.answer(message);
}

void Supervisor::on_worker_loaded(WorkerSlot& slot) {
    if (slot.role() != control::FFN) return;
    control::SupervisorMessage message;
    *message.mutable_voided() = voided_rounds_.tell(slot.index());
    slot.answer(message);
}

void Supervisor::on_worker_gone(WorkerSlot& slot, const WorkerEnd& end) {
    if (plan_.end_counts) plan_.end_counts(slot.role(), slot.index());
    if (plan_.mend_segments) plan_.mend_segments(slot.role(), slot.index());
    if (slot.role() == control::FFN) {
        voided_rounds_.reopen(slot.index());
        tell_rank_state(slot);
        if (goes_on_without_lost_ranks()) {
            log::info("requests go on without {}: others have its experts, too", slot.name());
        }
    }
    // R9: it may have died between a flag and the ring. Everybody looks once more.
    doorbells_.ring_all();
    if (slot.role() == control::ATTENTION) {
        attention_listener_->on_attention_gone(slot.index(), end);
    }
    check_all_gone();
}

void Supervisor::on_worker_given_up(WorkerSlot& /*slot*/, const std::string& why) {
    instance_listener_->on_given_up(why);
}

void Supervisor::shut_down(uint64_t grace_ms) {
    shutting_down_ = true;
    heartbeat_timer_.stop();
    for (WorkerSlot* slot : slots_) {
        slot->shut_down();
        if (grace_ms == 0) slot->kill("");
    }
    if (grace_ms > 0) grace_timer_.start(grace_ms);
    check_all_gone();
}

void Supervisor::check_all_gone() {
    if (!shutting_down_ || has_processes()) return;
    grace_timer_.stop();
    shutting_down_ = false;
    instance_listener_->on_all_gone();
}

void Supervisor::fill_status(client::Status& status) const {
    status.set_state(std::string(!all_ready_ ? kInstanceStarting : state_name(service_.level)));
    // Before all were ready, that of those on other hosts, which are waited for.
    status.set_reason(all_ready_ ? service_.reason
                                 : service_state(attention_, ffn_, plan_.can_do_without).reason);
    for (const WorkerSlot* slot : slots_) {
        client::Worker& worker = *status.add_workers();
        slot->fill_status(worker);
        worker.set_host(slot->host());
        // Also while there is no process of this supervisor: a counter that falls looks like an
        // afdd that started anew.
        const uint64_t total = num_processes(slot->role(), slot->index());
        worker.set_num_restarts(static_cast<uint32_t>(total > 0 ? total - 1 : 0));
        plan_.fill_metrics(slot->role(), slot->index(), worker);
        if (slot->waits()) status.add_waits(slot->name() + ": " + slot->wait_text());
    }
}

}  // namespace afd::daemon
