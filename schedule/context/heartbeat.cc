// SPDX-License-Identifier: Apache-2.0
#include "schedule/context/heartbeat.h"

#include <fmt/core.h>

#include <atomic>

namespace afd::schedule {
namespace {

// The words of one heartbeat have one writer; see "Ordering" in the header.
template <typename T>
T load_acquire(const T& word) {
    // Pairs with store_release: a newer word brings the moved sequence with it.
    return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

template <typename T>
void store_release(T& word, T value) {
    // Pairs with load_acquire.
    std::atomic_ref<T>(word).store(value, std::memory_order_release);
}

std::array<int32_t, 6> to_words(const WaitInfo& wait) {
    return {static_cast<int32_t>(wait.kind),
            wait.peer,
            wait.micro_batch,
            wait.layer_id,
            wait.flag_seen,
            wait.flag_expected};
}

WaitInfo from_words(const std::array<int32_t, 6>& words) {
    // Another process's bytes: a number without a name must not reach the switches below.
    const bool known = words[0] >= 0 && words[0] <= static_cast<int32_t>(WaitKind::kGrant);
    return {known ? static_cast<WaitKind>(words[0]) : WaitKind::kNone,
            words[1],
            words[2],
            words[3],
            words[4],
            words[5]};
}

std::string_view wait_object(WaitKind kind) {
    switch (kind) {
        case WaitKind::kNone:
            return "nothing";
        case WaitKind::kResults:
            return "results";
        case WaitKind::kAcknowledged:
            return "the acknowledgement";
        case WaitKind::kTakeover:
            return "the acknowledgement of a previous process's round";
        case WaitKind::kDispatch:
            return "a dispatch";
        case WaitKind::kGrant:
            return "the memory of a two-phase round";
    }
    return "nothing";
}

}  // namespace

std::string_view worker_state_name(WorkerState state) {
    switch (state) {
        case WorkerState::kStarting:
            return "starting";
        case WorkerState::kIdle:
            return "idle";
        case WorkerState::kComputing:
            return "computing";
        case WorkerState::kWaiting:
            return "waiting";
    }
    return "unknown";
}

void Heartbeat::start(int32_t pid) {
    state_ = WorkerState::kStarting;
    wait_ = {};
    // A predecessor killed in describe() leaves the sequence odd.
    const int32_t sequence = load_acquire(words_->sequence) | 1;
    store_release(words_->sequence, sequence);
    store_release(words_->pid, pid);
    store_release(words_->state, static_cast<int32_t>(state_));
    for (int32_t& word : words_->wait) store_release(word, 0);
    // Unsigned: the counter may wrap in a long life, and a signed overflow is undefined.
    store_release(words_->sequence, static_cast<int32_t>(static_cast<uint32_t>(sequence) + 1u));
    beat();
}

void Heartbeat::beat() {
    store_release(words_->progress, load_acquire(words_->progress) + 1);
}

void Heartbeat::describe(WorkerState state, const WaitInfo& wait) {
    beat();
    // A waiting loop comes here at every turn. Writing each time, it would leave the sequence odd
    // for much of the time, and readers would try in vain.
    if (state == state_ && wait == wait_) return;
    state_ = state;
    wait_ = wait;
    const uint32_t sequence = static_cast<uint32_t>(load_acquire(words_->sequence));
    store_release(words_->sequence, static_cast<int32_t>(sequence + 1));
    store_release(words_->state, static_cast<int32_t>(state));
    const std::array<int32_t, 6> words = to_words(wait);
    for (size_t i = 0; i < words.size(); ++i) store_release(words_->wait[i], words[i]);
    store_release(words_->sequence, static_cast<int32_t>(sequence + 2));
}

HeartbeatView read_heartbeat(const HeartbeatWords& words) {
    // A writer killed between its stores leaves an odd sequence for ever: the last try is taken
    // as it is, which costs at most a mixed line in a diagnostic.
    constexpr int kTries = 64;
    HeartbeatView view;
    for (int attempt = 0; attempt < kTries; ++attempt) {
        const int32_t sequence = load_acquire(words.sequence);
        view.progress = load_acquire(words.progress);
        view.pid = load_acquire(words.pid);
        const int32_t state = load_acquire(words.state);
        const bool known = state >= 0 && state <= static_cast<int32_t>(WorkerState::kWaiting);
        view.state = known ? static_cast<WorkerState>(state) : WorkerState::kStarting;
        std::array<int32_t, 6> wait{};
        for (size_t i = 0; i < wait.size(); ++i) wait[i] = load_acquire(words.wait[i]);
        view.wait = from_words(wait);
        if (sequence % 2 == 0 && load_acquire(words.sequence) == sequence) break;
    }
    return view;
}

HeartbeatImage image_of(const HeartbeatView& view) {
    return {view.progress, view.pid, static_cast<int32_t>(view.state), to_words(view.wait)};
}

// As Heartbeat::describe().
void store_image(const HeartbeatImage& image, HeartbeatWords& words) {
    const auto sequence = static_cast<uint32_t>(load_acquire(words.sequence)) & ~1u;
    store_release(words.sequence, static_cast<int32_t>(sequence + 1));
    store_release(words.pid, image.pid);
    store_release(words.state, image.state);
    for (size_t i = 0; i < image.wait.size(); ++i) store_release(words.wait[i], image.wait[i]);
    store_release(words.sequence, static_cast<int32_t>(sequence + 2));
    store_release(words.progress, image.progress);
}

uint64_t HeartbeatObserver::observe(const HeartbeatView& view, uint64_t now_us) {
    // A new pid is a new life: the successor does not inherit its predecessor's silence.
    if (!seen_ || view.progress != progress_ || view.pid != pid_) {
        seen_ = true;
        progress_ = view.progress;
        pid_ = view.pid;
        changed_us_ = now_us;
    }
    return now_us - changed_us_;
}

std::string describe_wait(
    Role role, uint32_t index, int32_t pid, const WaitInfo& wait, const PeerState& peer) {
    const Role peer_role =
        role == Role::kFfn || wait.kind == WaitKind::kDispatch ? Role::kAttention : Role::kFfn;
    return fmt::format(
        "{} {} (pid {}) waits for {} of {} {} (pid {}): micro-batch {}, layer {}, flag seen {}, "
        "flag expected {}",
        role_index_name(role),
        index,
        pid,
        wait_object(wait.kind),
        role_index_name(peer_role),
        wait.peer,
        peer.heartbeat.pid,
        wait.micro_batch,
        wait.layer_id,
        wait.flag_seen,
        wait.flag_expected);
}

std::string describe_peer(const PeerState& peer) {
    return fmt::format("the peer is {}, its last heartbeat {} ms ago",
                       worker_state_name(peer.heartbeat.state),
                       peer.heartbeat_age_us / 1000);
}

}  // namespace afd::schedule
