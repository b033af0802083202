// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/admission_queue.h"

#include <algorithm>
#include <string>

#include "model/attention/kv_cache.h"

namespace afd::daemon {

AdmissionQueue::AdmissionQueue(uint32_t num_workers,
                               uint64_t max_queue,
                               uint32_t max_sequences,
                               const Reservation& reservation)
    : max_queue_(max_queue),
      max_sequences_(max_sequences),
      reservation_(reservation),
      workers_(num_workers) {}

void AdmissionQueue::set_num_workers(uint32_t num_workers) {
    AFD_ASSERT(num_running() == 0, "%zu requests run", num_running());
    workers_.assign(num_workers, Worker{});
}

void AdmissionQueue::worker_ready(uint32_t session, uint64_t kv_tokens) {
    Worker& worker = workers_[session];
    AFD_ASSERT(!worker.is_ready, "session %u is ready twice", session);
    worker = Worker{.is_ready = true, .total_blocks = kv_tokens / model::kKvBlockTokens};
}

void AdmissionQueue::worker_waits(uint32_t session, bool is_waiting) {
    // What a worker says before it is ready, or leaves behind, is not remembered.
    if (workers_[session].is_ready) workers_[session].is_waiting = is_waiting;
}

std::vector<uint64_t> AdmissionQueue::worker_gone(uint32_t session) {
    workers_[session] = Worker{};
    std::vector<uint64_t> lost;
    for (auto& [id, entry] : requests_) {
        if (entry.session != session) continue;
        entry.session.reset();
        entry.is_suspect = false;
        lost.push_back(id);
    }
    std::sort(lost.begin(), lost.end(), [this](auto a, auto b) { return is_before(a, b); });
    put_in_front(lost);
    return lost;
}

bool AdmissionQueue::is_before(uint64_t a, uint64_t b) const {
    return requests_.at(a).order < requests_.at(b).order;
}

void AdmissionQueue::put_in_front(std::span<const uint64_t> ids) {
    // Requests of an earlier death may wait already; the order of arrival settles it.
    std::vector<uint64_t> again(queue_.again().begin(), queue_.again().end());
    again.insert(again.end(), ids.begin(), ids.end());
    std::sort(again.begin(), again.end(), [this](auto a, auto b) { return is_before(a, b); });
    queue_.set_again(again);
}

void AdmissionQueue::suspect(uint64_t id, std::optional<uint32_t> avoided) {
    Entry& entry = requests_.at(id);
    AFD_ASSERT(!entry.session && !entry.is_suspect,
               "request %llu does not wait with others",
               static_cast<unsigned long long>(id));
    queue_.remove(id, entry.client);
    entry.is_suspect = true;
    entry.avoided = avoided;
    if (suspects_.empty()) num_passes_ = 0;
    const auto place = std::upper_bound(
        suspects_.begin(), suspects_.end(), id, [this](auto a, auto b) { return is_before(a, b); });
    suspects_.insert(place, id);
}

bool AdmissionQueue::is_another_ready(uint32_t session) const {
    for (uint32_t other = 0; other < workers_.size(); ++other) {
        if (other != session && workers_[other].is_ready) return true;
    }
    return false;
}

bool AdmissionQueue::is_on_trial(uint64_t id) const {
    const auto found = requests_.find(id);
    return found != requests_.end() && found->second.is_suspect && found->second.session;
}

void AdmissionQueue::end_trial(uint64_t id) {
    AFD_ASSERT(
        is_on_trial(id), "request %llu is not on trial", static_cast<unsigned long long>(id));
    Entry& entry = requests_.at(id);
    leave_worker(entry);
    entry.is_suspect = false;
    put_in_front({&id, 1});
}

void AdmissionQueue::leave_worker(Entry& entry) {
    Worker& worker = workers_[*entry.session];
    worker.used_blocks -= entry.blocks;
    --worker.num_sequences;
    // A suspect was alone there.
    worker.has_suspect = false;
    entry.session.reset();
}

Result<> AdmissionQueue::check_place(FairQueue::Client client) const {
    // With max_queue = 0 a request that runs at once is still taken: enqueue() sees whether it
    // does.
    if (queue_.empty()) return {};
    return check_full(client);
}

Result<> AdmissionQueue::check_full(FairQueue::Client client) const {
    const size_t num_free = max_queue_ - std::min<size_t>(max_queue_, num_queued());
    if (num_free == 0) {
        return Error{Code::kResourceExhausted,
                     "the queue is full: " + std::to_string(num_queued()) +
                         " requests wait (max_queue = " + std::to_string(max_queue_) +
                         "); try again later"};
    }
    if (queue_.size_of(client) < 2 * num_free) return {};
    return Error{Code::kResourceExhausted,
                 std::to_string(queue_.size_of(client)) +
                     " requests of this connection wait, and the " + std::to_string(num_free) +
                     " free places of the queue are kept for others (max_queue = " +
                     std::to_string(max_queue_) + "); try again later"};
}

Result<> AdmissionQueue::enqueue(uint64_t id,
                                 uint64_t num_tokens,
                                 uint64_t tokens_max,
                                 FairQueue::Client client) {
    const uint64_t blocks = reservation_.blocks(num_tokens, tokens_max);
    const bool runs_at_once = !is_still_ && queue_.empty() && best_worker(blocks).has_value();
    if (!runs_at_once) AFD_TRY(check_full(client));
    const bool is_new =
        requests_.emplace(id, Entry{num_tokens, tokens_max, blocks, next_order_++, client}).second;
    AFD_ASSERT(is_new, "request %llu is queued twice", static_cast<unsigned long long>(id));
    queue_.push(id, client);
    return {};
}

void AdmissionQueue::on_token(uint64_t id) {
    Entry& entry = requests_.at(id);
    const uint64_t blocks = reservation_.blocks(++entry.num_tokens, entry.tokens_max);
    workers_[*entry.session].used_blocks += blocks - entry.blocks;
    entry.blocks = blocks;
}

uint64_t AdmissionQueue::reserved_tokens(uint64_t id) const {
    const Entry& entry = requests_.at(id);
    return reservation_.tokens(entry.num_tokens, entry.tokens_max);
}

bool AdmissionQueue::give_way(uint64_t id) {
    Entry& entry = requests_.at(id);
    if (entry.alone_as == workers_[*entry.session].num_given) return false;
    leave_worker(entry);
    put_in_front({&id, 1});
    return true;
}

bool AdmissionQueue::remove(uint64_t id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return false;
    Entry& entry = found->second;
    if (entry.session) {
        leave_worker(entry);
    } else if (entry.is_suspect) {
        std::erase(suspects_, id);
    } else {
        queue_.remove(id, entry.client);
    }
    requests_.erase(found);
    return true;
}

void AdmissionQueue::change_client(uint64_t id, FairQueue::Client client) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    Entry& entry = found->second;
    if (!entry.session && !entry.is_suspect) queue_.change_client(id, entry.client, client);
    entry.client = client;
}

std::optional<AdmissionQueue::Admission> AdmissionQueue::admit_next() {
    if (is_still_) return std::nullopt;
    if (const auto trial = next_trial()) return trial;
    if (queue_.empty()) return std::nullopt;
    // Only the first: taking a smaller one that fits would starve a large one.
    const uint64_t id = queue_.front();
    const std::optional<uint32_t> session = best_worker(requests_.at(id).blocks);
    if (!session) return std::nullopt;
    queue_.pop();
    if (awaits_idle_worker()) ++num_passes_;
    return give(id, *session);
}

AdmissionQueue::Admission AdmissionQueue::give(uint64_t id, uint32_t session) {
    Entry& entry = requests_.at(id);
    Worker& worker = workers_[session];
    entry.session = session;
    worker.used_blocks += entry.blocks;
    ++worker.num_sequences;
    ++worker.num_given;
    entry.alone_as = worker.num_sequences == 1 ? worker.num_given : 0;
    return {id, session, entry.is_suspect};
}

std::optional<AdmissionQueue::Admission> AdmissionQueue::next_trial() {
    if (!awaits_idle_worker()) return std::nullopt;
    const uint64_t id = suspects_.front();
    const std::optional<uint32_t> session = idle_worker(requests_.at(id));
    if (!session) return std::nullopt;
    suspects_.pop_front();
    num_passes_ = 0;
    workers_[*session].has_suspect = true;
    return give(id, *session);
}

bool AdmissionQueue::awaits_idle_worker() const {
    return !suspects_.empty() && std::none_of(workers_.begin(), workers_.end(), [](auto& worker) {
        return worker.has_suspect;
    });
}

std::optional<uint32_t> AdmissionQueue::session_of(uint64_t id) const {
    const auto found = requests_.find(id);
    return found == requests_.end() ? std::nullopt : found->second.session;
}

// If all wait, it is for something that is common to them, and where a request waits is equal.
bool AdmissionQueue::do_some_go_on() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
        return worker.is_ready && !worker.is_waiting;
    });
}

bool AdmissionQueue::may_try(const Entry& suspect, uint32_t session) const {
    return workers_[session].is_ready && (suspect.avoided != session || !is_another_ready(session));
}

std::optional<uint32_t> AdmissionQueue::idle_worker(const Entry& suspect) const {
    const bool some_go_on = do_some_go_on();
    std::optional<uint32_t> best;
    for (uint32_t session = 0; session < workers_.size(); ++session) {
        const Worker& worker = workers_[session];
        if (some_go_on && worker.is_waiting) continue;
        const bool is_idle = may_try(suspect, session) && worker.num_sequences == 0 &&
                             worker.total_blocks >= suspect.blocks;
        // A new one, if there is one: nobody else can have left that broken.
        if (is_idle && (!best || worker.num_given < workers_[*best].num_given)) best = session;
    }
    return best;
}

// The one that gets nothing until it is idle, when others have gone before a suspect for too long.
// Of those that run requests the number of the fewest falls until it is 0: nobody else gets fewer.
std::optional<uint32_t> AdmissionQueue::kept_worker() const {
    if (num_passes_ < kPassesMax || !awaits_idle_worker()) return std::nullopt;
    const Entry& suspect = requests_.at(suspects_.front());
    std::optional<uint32_t> kept;
    for (uint32_t session = 0; session < workers_.size(); ++session) {
        if (!may_try(suspect, session)) continue;
        const uint32_t num_sequences = workers_[session].num_sequences;
        if (!kept || num_sequences < workers_[*kept].num_sequences) kept = session;
    }
    return kept;
}

std::optional<uint32_t> AdmissionQueue::best_worker(uint64_t blocks) const {
    const bool some_go_on = do_some_go_on();
    const std::optional<uint32_t> kept = kept_worker();
    std::optional<uint32_t> best;
    for (uint32_t session = 0; session < workers_.size(); ++session) {
        const Worker& worker = workers_[session];
        if (some_go_on && worker.is_waiting) continue;
        if (worker.has_suspect || session == kept) continue;
        const bool fits = worker.is_ready && worker.num_sequences < max_sequences_ &&
                          worker.free_blocks() >= blocks;
        // The most free room, so that load spreads; of equal ones the lowest number.
        if (fits && (!best || worker.free_blocks() > workers_[*best].free_blocks())) {
            best = session;
        }
    }
    return best;
}

void AdmissionQueue::fill_status(client::Status& status) const {
    status.set_num_queued(static_cast<uint32_t>(num_queued()));
    status.set_num_running(static_cast<uint32_t>(num_running()));
    for (client::Worker& worker : *status.mutable_workers()) {
        if (worker.role() != "attention" || worker.index() >= workers_.size()) continue;
        const Worker& load = workers_[worker.index()];
        worker.set_num_sequences(load.num_sequences);
        worker.set_kv_tokens_used(std::min(load.used_blocks, load.total_blocks) *
                                  model::kKvBlockTokens);
        worker.set_kv_tokens_total(load.total_blocks * model::kKvBlockTokens);
    }
}

}  // namespace afd::daemon
