// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResumableRequests: the requests with which a Resume may go on, by the ids that it names. What was
// said of each is its KeptStream's.
//
// When the connection of one breaks it runs on, with its stream as its client, and when it ends it
// is kept: for the time that it asked for, from the later of the two on. Then, or when there are
// too many or too large ones, it is forgotten; one that runs is cancelled by that. Of too many the
// one that ended first goes first, of those that run the one that came last. If the bytes of all
// are too many the largest goes; one that a connection has loses nothing but its id.
//
// A Resume takes the request from the connection that has it. It is told what was said in parts, as
// it reads (pump()), and has the request when it has heard all. Whoever reads nothing of one that
// is over is waited for as long as one who does not come.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/client_answers.h"
#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/session/kept_stream.h"
#include "daemon/loop/event_loop.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class ResumableRequests {
  public:
    // `on_time`: enforce_limits() is to be called. All outlive the object.
    ResumableRequests(EventLoop& loop,
                      const Config& config,
                      FlightTable& flights,
                      AdmissionQueue& queue,
                      ClientAnswers& answers,
                      FlightEnds& ends,
                      std::function<void()> on_time);

    // Errors: kInvalidArgument: it is to be resumable, and nothing is kept here.
    Result<> check(const client::Generate& wish) const;
    // Whether the connection may have one more request, under this id, if `num_detached` of its
    // account count as its own. Errors: kInvalidArgument: the id is in use on it.
    // kResourceExhausted: it has enough.
    Result<> check_room(const ClientSession& client,
                        uint64_t request_id,
                        size_t num_detached) const;
    // Keeps what will be said of a request that begins, if it wishes that, and gives `accepted` its
    // id. REQUIRES: check().ok().
    std::shared_ptr<KeptStream> open(FlightTable::Id id,
                                     const ClientSession& client,
                                     const client::Generate& wish,
                                     client::Accepted& accepted);

    // Answers Accepted; pump() says the rest.
    // Errors: kNotFound: no such id, or it is of another account. kUnavailable: the afdd before
    // this one still runs it. kInvalidArgument: received_chunks. Those of check_room().
    Result<> resume(ClientSession& client, uint64_t request_id, const client::Resume& wish);

    // The connection is closed: its requests of this kind are nobody's, but for those that it has
    // cancelled.
    void detach(const ClientSession& client);

    // Those that are over and that nobody is being told of: they are forgotten here.
    std::vector<HandedStream> take_finished();
    // One that another afdd has kept. `form`: made of that of `stream`.
    void adopt(const HandedStream& stream, std::shared_ptr<const SessionForm> form);
    // The ids of requests that another afdd still keeps and will give away: till then a Resume of
    // one is told so.
    void set_elsewhere(std::set<std::string> ids) { elsewhere_ = std::move(ids); }
    bool empty() const { return entries_.empty(); }
    std::vector<std::string> ids() const;

    // Says to whoever has resumed what they take now; whether that was anything.
    bool pump();
    // A client has read some of what was queued for it, of whatever.
    void note_progress(const ClientSession& client);
    // Forgets what is too old or too much.
    void enforce_limits();
    // `on_time` comes in the next turn if something has changed since.
    void ask_if_changed();

    // The request that a connection has resumed under this id and not heard all of.
    std::optional<FlightTable::Id> find(const ClientSession& client, uint64_t request_id) const;
    // Whether a connection has resumed one and not heard all of it.
    bool is_for(const ClientSession& client) const;
    // Whether a client that is gone has not heard all of one that was kept for it.
    bool has_unheard() const;

    void fill_status(client::Status& status) const;

  private:
    enum class State {
        kHeld,  // It runs, and a connection has it.
        kLeft,  // It runs, and none has.
        kOver,
    };
    // A connection that has resumed it, and has not heard all yet.
    struct Reader {
        ClientSession* client = nullptr;
        uint64_t request_id = 0;
        uint64_t place = 0;     // Of what it is told next.
        uint64_t heard_ms = 0;  // When it was last told anything or read anything, or came.
    };
    struct Entry {
        std::shared_ptr<KeptStream> stream;
        uint64_t grace_ms = 0;
        State state = State::kHeld;
        uint64_t since_ms = 0;  // When it came to be kLeft or kOver.
        bool is_unheard = false;
        std::optional<Reader> reader;

        // When it is forgotten; nothing: while somebody is told of it or has it, unless it is over.
        std::optional<uint64_t> end_ms() const;
        bool is_over() const { return state == State::kOver; }
        bool is_idle() const { return state != State::kHeld && !reader; }
        bool is_read_by(const ClientSession& client) const {
            return reader && reader->client == &client;
        }
    };
    using Entries = std::unordered_map<std::string, Entry>;

    // What changes the state of an entry, or its reader.
    void begin_reading(Entry& entry, ClientSession& client, uint64_t request_id, uint64_t place);
    void end_reading(Entry& entry);
    void take_from_holder(Entry& entry);
    void leave(Entry& entry);
    void hand_over(Entry& entry);
    void note_ends();
    bool pump(Entry& entry);
    void forget_expired();
    void forget_too_many();
    void forget_too_large();
    // The entry and its id are gone; `why` for whoever is being told.
    Entries::iterator forget(Entries::iterator found, const char* why);
    void wait_for_next();

    EventLoop& loop_;
    const Config& config_;
    FlightTable& flights_;
    AdmissionQueue& queue_;
    ClientAnswers& answers_;
    FlightEnds& ends_;
    Timer timer_;
    const std::shared_ptr<KeptStream::Totals> totals_ = std::make_shared<KeptStream::Totals>();
    Entries entries_;
    std::vector<std::shared_ptr<KeptStream>> forgotten_;  // Somebody up the stack may know them.
    std::set<std::string> elsewhere_;
    std::set<std::string> accounts_;  // Places of these stand for them in the queue.
    size_t num_readers_ = 0;
    bool has_changed_ = false;  // Who is idle, since the limits were enforced.
};

}  // namespace afd::daemon
