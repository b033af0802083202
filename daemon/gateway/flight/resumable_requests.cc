// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/resumable_requests.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "daemon/gateway/request/random_seed.h"
#include "daemon/program/logging.h"

namespace afd::daemon {

ResumableRequests::ResumableRequests(EventLoop& loop,
                                     const Config& config,
                                     FlightTable& flights,
                                     AdmissionQueue& queue,
                                     ClientAnswers& answers,
                                     FlightEnds& ends,
                                     std::function<void()> on_time)
    : loop_(loop),
      config_(config),
      flights_(flights),
      queue_(queue),
      answers_(answers),
      ends_(ends),
      timer_(loop, [this, on_time = std::move(on_time)] {
          has_changed_ = true;
          on_time();
      }) {}

std::optional<uint64_t> ResumableRequests::Entry::end_ms() const {
    // That a slow one has read shows after some hundred KiB.
    constexpr uint64_t kReaderMsMin = 5000;
    if (is_idle()) return since_ms + grace_ms;
    if (!is_over()) return std::nullopt;
    return std::max(since_ms, reader->heard_ms) + std::max(grace_ms, kReaderMsMin);
}

Result<> ResumableRequests::check(const client::Generate& wish) const {
    if (wish.resumable_ms() == 0 || config_.resume_grace_ms > 0) return {};
    return Error{Code::kInvalidArgument,
                 fmt::format("resumable_ms = {}: this instance keeps no request without its client "
                             "(resume_grace_ms = 0)",
                             wish.resumable_ms())};
}

Result<> ResumableRequests::check_room(const ClientSession& client,
                                       uint64_t request_id,
                                       size_t num_detached) const {
    // Also as that of a stream that was resumed and is told from what was kept.
    if (flights_.find(client, request_id) || find(client, request_id)) {
        return Error{Code::kInvalidArgument,
                     fmt::format("request_id {} is in flight on this connection already; choose "
                                 "another",
                                 request_id)};
    }
    const size_t num_counted = flights_.num_of(client) + num_detached;
    if (num_counted < config_.connection_requests_max) return {};
    return Error{Code::kResourceExhausted,
                 fmt::format("{} requests of this connection{} are in flight "
                             "(connection_requests_max = {}); wait for one to end",
                             num_counted,
                             num_detached > 0 ? " and of those of its user that broke" : "",
                             config_.connection_requests_max)};
}

std::shared_ptr<KeptStream> ResumableRequests::open(FlightTable::Id id,
                                                    const ClientSession& client,
                                                    const client::Generate& wish,
                                                    client::Accepted& accepted) {
    if (wish.resumable_ms() == 0) return nullptr;
    // 128 bits of the system: who was not told cannot find one.
    std::string name = fmt::format("{:016x}{:016x}", draw_random(), draw_random());
    accepted.set_resume_id(name);
    Entry entry;
    entry.stream = std::make_shared<KeptStream>(
        id, client, accepted, config_.output_buffer_kib * 1024, totals_);
    entry.grace_ms = std::min<uint64_t>(wish.resumable_ms(), config_.resume_grace_ms);
    std::shared_ptr<KeptStream> stream = entry.stream;
    entries_.emplace(std::move(name), std::move(entry));
    return stream;
}

Result<> ResumableRequests::resume(ClientSession& client,
                                   uint64_t request_id,
                                   const client::Resume& wish) {
    if (elsewhere_.contains(wish.id())) {
        return Error{
            Code::kUnavailable,
            "the request still runs with the afdd before this one, and can be resumed here "
            "when it has ended: try again in a moment (afdctl status shows when)"};
    }
    const auto found = entries_.find(wish.id());
    // That of another account is as unknown as one that was never given.
    if (found == entries_.end() ||
        found->second.stream->identity().account != client.identity().account) {
        return Error{Code::kNotFound,
                     "no request of yours can be resumed by this id: it was never given, or its "
                     "time is over (resumable_ms), or there was no room to keep it"};
    }
    // Nothing counts beside its own: this leaves no further request behind, but takes one up.
    AFD_TRY(check_room(client, request_id, 0));
    Entry& entry = found->second;
    client::Response response;
    response.set_request_id(request_id);
    AFD_ASSIGN(*response.mutable_accepted(), entry.stream->resume(wish.received_chunks()));
    take_from_holder(entry);
    begin_reading(entry, client, request_id, wish.received_chunks());
    log::of_request(entry.stream->flight(),
                    log::Level::kDebug,
                    "resumed by {} behind {} chunks, its request {}",
                    client.identity().name,
                    wish.received_chunks(),
                    request_id);
    client.on_resumed(request_id, entry.stream->form());
    answers_.send(client, response);
    return {};
}

std::vector<HandedStream> ResumableRequests::take_finished() {
    note_ends();
    std::vector<HandedStream> taken;
    for (auto it = entries_.begin(); it != entries_.end();) {
        const Entry& entry = it->second;
        if (!entry.is_over() || entry.reader) {
            ++it;
            continue;
        }
        HandedStream& stream = taken.emplace_back(entry.stream->handed());
        stream.id = it->first;
        stream.is_unheard = entry.is_unheard;
        const uint64_t waited_ms = loop_.now_ms() - entry.since_ms;
        stream.grace_ms = entry.grace_ms - std::min(entry.grace_ms, waited_ms);
        it = forget(it, "");
    }
    forgotten_.clear();
    return taken;
}

void ResumableRequests::adopt(const HandedStream& stream, std::shared_ptr<const SessionForm> form) {
    elsewhere_.erase(stream.id);
    Entry entry;
    entry.stream = std::make_shared<KeptStream>(stream, std::move(form), totals_);
    entry.grace_ms = std::min<uint64_t>(stream.grace_ms, config_.resume_grace_ms);
    entry.is_unheard = stream.is_unheard;
    entries_.emplace(stream.id, std::move(entry));
    has_changed_ = true;
}

std::vector<std::string> ResumableRequests::ids() const {
    std::vector<std::string> ids;
    for (const auto& [id, entry] : entries_) ids.push_back(id);
    return ids;
}

void ResumableRequests::begin_reading(Entry& entry,
                                      ClientSession& client,
                                      uint64_t request_id,
                                      uint64_t place) {
    entry.reader = Reader{&client, request_id, place, loop_.now_ms()};
    ++num_readers_;
    has_changed_ = true;
}

void ResumableRequests::end_reading(Entry& entry) {
    entry.reader.reset();
    --num_readers_;
    has_changed_ = true;
}

// It may be half dead: who asks now is alive.
void ResumableRequests::take_from_holder(Entry& entry) {
    const Error taken = {Code::kAlreadyExists, "another connection has resumed this request"};
    if (entry.reader) {
        answers_.error(*entry.reader->client, entry.reader->request_id, taken);
        end_reading(entry);
        return;
    }
    Flight* flight = flights_.find(entry.stream->flight());
    if (flight == nullptr || !flight->has_connection()) return;
    answers_.error(*flight->client, flight->request_id, taken);
    flight->client = entry.stream.get();
    entry.stream->detach();
}

void ResumableRequests::detach(const ClientSession& client) {
    for (const FlightTable::Id id : flights_.ids_of(client)) {
        Flight& flight = flights_.at(id);
        if (flight.kept == nullptr) continue;
        const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& each) {
            return each.second.stream == flight.kept;
        });
        if (flight.is_cancelled) {
            forget(found, "");
            continue;
        }
        flight.client = flight.kept.get();
        flight.kept->detach();
        leave(found->second);
    }
    if (num_readers_ == 0) return;
    for (auto& [id, entry] : entries_) {
        if (!entry.is_read_by(client)) continue;
        end_reading(entry);
        leave(entry);
    }
}

void ResumableRequests::leave(Entry& entry) {
    entry.is_unheard = true;
    has_changed_ = true;
    // What is over waits no longer because somebody has looked at it.
    if (entry.is_over()) return;
    entry.state = State::kLeft;
    entry.since_ms = loop_.now_ms();
    const FlightTable::Id id = entry.stream->flight();
    // Its old name in the queue was the connection, and that is destroyed.
    queue_.change_client(id, &*accounts_.insert(entry.stream->identity().account).first);
    log::of_request(id, log::Level::kDebug, "no client has it: kept for {} ms", entry.grace_ms);
}

bool ResumableRequests::pump() {
    if (num_readers_ == 0) return false;
    bool has_said = false;
    for (auto& [id, entry] : entries_) {
        if (entry.reader) has_said |= pump(entry);
    }
    return has_said;
}

void ResumableRequests::note_progress(const ClientSession& client) {
    if (num_readers_ == 0) return;
    for (auto& [id, entry] : entries_) {
        if (entry.is_read_by(client)) entry.reader->heard_ms = loop_.now_ms();
    }
}

bool ResumableRequests::pump(Entry& entry) {
    // Half of what a client may leave unread, so that catching up does not end its requests.
    const size_t queued_max = config_.output_buffer_kib * 1024 / 2;
    ClientSession& client = *entry.reader->client;
    bool has_said = false;
    while (entry.is_read_by(client) && client.queued_bytes() < queued_max) {
        Reader& reader = *entry.reader;
        std::optional<client::Response> answer = entry.stream->answer(reader.place);
        if (!answer) {
            hand_over(entry);
            return has_said;
        }
        answer->set_request_id(reader.request_id);
        entry.stream->pass(reader.place++);
        reader.heard_ms = loop_.now_ms();
        const bool is_end = !answer->has_chunk();
        if (is_end) {
            end_reading(entry);
            entry.is_unheard = false;
        }
        answers_.send(client, *answer);
        has_said = true;
    }
    return has_said;
}

// It has heard all: from here on it hears what is said as it is said.
void ResumableRequests::hand_over(Entry& entry) {
    Flight& flight = flights_.at(entry.stream->flight());
    flight.client = entry.reader->client;
    flight.request_id = entry.reader->request_id;
    end_reading(entry);
    entry.stream->attach();
    entry.state = State::kHeld;
    entry.is_unheard = false;
    queue_.change_client(entry.stream->flight(), flight.client);
}

void ResumableRequests::enforce_limits() {
    forgotten_.clear();
    if (totals_->bytes > config_.resume_buffer_kib * 1024) forget_too_large();
    if (!std::exchange(totals_->has_end, false) && !has_changed_) return;
    note_ends();
    forget_expired();
    forget_too_many();
    wait_for_next();
    has_changed_ = false;
    forgotten_.clear();
}

void ResumableRequests::ask_if_changed() {
    if (has_changed_ || totals_->has_end) timer_.start(0);
}

void ResumableRequests::note_ends() {
    for (auto& [id, entry] : entries_) {
        if (!entry.stream->is_over() || entry.is_over()) continue;
        entry.state = State::kOver;
        entry.since_ms = loop_.now_ms();
        // Its client wants no more of it.
        if (entry.stream->is_cancelled()) entry.grace_ms = 0;
    }
}

void ResumableRequests::forget_expired() {
    for (auto it = entries_.begin(); it != entries_.end();) {
        const auto end_ms = it->second.end_ms();
        const bool is_expired = end_ms && *end_ms <= loop_.now_ms();
        it = is_expired ? forget(it, "nothing of it was read for as long as it is kept")
                        : std::next(it);
    }
}

void ResumableRequests::forget_too_many() {
    std::vector<Entries::iterator> idle;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (it->second.is_idle()) idle.push_back(it);
    }
    if (idle.size() <= config_.detached_requests_max) return;
    // What ended goes before what runs; of the former the oldest, of the latter the newest.
    const auto turn_of = [](const Entries::iterator& found) {
        const Entry& entry = found->second;
        const int64_t sign = entry.is_over() ? 1 : -1;
        return std::tuple(!entry.is_over(),
                          sign * static_cast<int64_t>(entry.since_ms),
                          sign * static_cast<int64_t>(entry.stream->flight()));
    };
    std::sort(idle.begin(), idle.end(), [&](const auto& a, const auto& b) {
        return turn_of(a) < turn_of(b);
    });
    idle.resize(idle.size() - config_.detached_requests_max);
    for (const auto it : idle) forget(it, "");
}

void ResumableRequests::forget_too_large() {
    while (totals_->bytes > config_.resume_buffer_kib * 1024) {
        const auto largest =
            std::max_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
                return a.second.stream->bytes() < b.second.stream->bytes();
            });
        log::warn(
            "{} bytes of answers are kept, more than resume_buffer_kib allows: the largest, "
            "of {}, is forgotten",
            totals_->bytes,
            largest->second.stream->identity().name);
        forget(largest, "the answers that are kept are too many (resume_buffer_kib)");
        forgotten_.clear();
    }
}

ResumableRequests::Entries::iterator ResumableRequests::forget(Entries::iterator found,
                                                               const char* why) {
    Entry& entry = found->second;
    const std::shared_ptr<KeptStream> stream = entry.stream;
    if (entry.reader) {
        answers_.error(
            *entry.reader->client, entry.reader->request_id, {Code::kResourceExhausted, why});
        --num_readers_;
    }
    forgotten_.push_back(stream);
    const auto next = entries_.erase(found);
    answers_.forget(*stream);
    Flight* flight = flights_.find(stream->flight());
    if (flight == nullptr) return next;
    flight->kept.reset();
    if (flight->client != stream.get()) return next;
    flight->client = nullptr;
    log::of_request(stream->flight(), log::Level::kDebug, "nobody has resumed it: it is cancelled");
    ends_.cancel(stream->flight());
    return next;
}

void ResumableRequests::wait_for_next() {
    std::optional<uint64_t> next_ms;
    for (const auto& [id, entry] : entries_) {
        const auto end_ms = entry.end_ms();
        if (end_ms) next_ms = std::min(next_ms.value_or(*end_ms), *end_ms);
    }
    if (next_ms) {
        timer_.start(*next_ms - loop_.now_ms());
    } else {
        timer_.stop();
    }
}

std::optional<FlightTable::Id> ResumableRequests::find(const ClientSession& client,
                                                       uint64_t request_id) const {
    if (num_readers_ == 0) return std::nullopt;
    for (const auto& [id, entry] : entries_) {
        if (entry.is_read_by(client) && entry.reader->request_id == request_id) {
            return entry.stream->flight();
        }
    }
    return std::nullopt;
}

bool ResumableRequests::is_for(const ClientSession& client) const {
    return num_readers_ > 0 &&
           std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
               return entry.second.is_read_by(client);
           });
}

bool ResumableRequests::has_unheard() const {
    return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
        return entry.second.is_unheard;
    });
}

void ResumableRequests::fill_status(client::Status& status) const {
    status.set_kept_bytes(totals_->bytes);
    status.set_num_detached(static_cast<uint32_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
            return entry.second.is_idle();
        })));
}

}  // namespace afd::daemon
