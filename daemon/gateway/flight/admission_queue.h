// SPDX-License-Identifier: Apache-2.0
#pragma once

// AdmissionQueue: which request runs on which attention worker, and when. Pure decisions: no
// clock, socket or process; the gateway carries them out.
//
// A request reserves KV room, in blocks of kKvBlockTokens, before it runs (reservation.h): for its
// prompt and all tokens it may produce, or for a step of these, and for more as they come. The
// connections take turns, and those of one are served in their order (fair_queue.h): a request that
// does not fit holds back those behind it (it cannot starve), and it goes to the worker with the
// most free room. After the death of a worker its requests are queued again in front of all others,
// in their old order: they were accepted earlier (promise 2). So are those that have given way
// (preemption.h).
//
// A suspect (suspects.h) goes before all of these, to a worker that is idle and gets nothing else
// until the suspect has left it. One at a time is on trial so; the other workers serve the rest.
// While none is idle others go first, kPassesMax of them at most: then the worker with the fewest
// gets none until it is idle.
//
// A connection may have twice as many places of the queue as are free: one alone gets two of three,
// the next two thirds of the rest, and so on. Several greedy ones together, six if max_queue is
// 512, still fill the queue; the next request is then refused until one of theirs starts.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/gateway/flight/fair_queue.h"
#include "daemon/gateway/flight/reservation.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class AdmissionQueue {
  public:
    // One attention worker as admission sees it.
    struct Worker {
        bool is_ready = false;
        bool is_waiting = false;   // For a peer, long enough to be reported.
        bool has_suspect = false;  // And nothing else.
        uint64_t total_blocks = 0;
        uint64_t used_blocks = 0;
        uint32_t num_sequences = 0;
        uint64_t num_given = 0;  // Requests, since it is ready.

        // What those that run reserve as they grow may be more than there is.
        uint64_t free_blocks() const { return total_blocks - std::min(total_blocks, used_blocks); }
    };

    struct Admission {
        uint64_t id = 0;
        uint32_t session = 0;
        bool is_trial = false;  // Of a suspect, which is to leave after its next token.
    };

    static constexpr uint64_t kPassesMax = 256;

    AdmissionQueue(uint32_t num_workers,
                   uint64_t max_queue,
                   uint32_t max_sequences,
                   const Reservation& reservation = {});

    // None of the workers is there any more, and `num_workers` others are to come.
    // REQUIRES: no request runs.
    void set_num_workers(uint32_t num_workers);

    // No request is given to a worker until go_on().
    void stand_still() { is_still_ = true; }
    void go_on() { is_still_ = false; }

    // The worker may be given requests from now on. REQUIRES: it is not ready.
    void worker_ready(uint32_t session, uint64_t kv_tokens);

    // A worker that waits for a peer gets no request while another is ready that does not: its own
    // may wait for the same slot, until their deadline.
    void worker_waits(uint32_t session, bool is_waiting);

    // The worker is gone. Its requests are queued again. Returns them in the new order of the
    // queue; the caller may remove() some of them.
    std::vector<uint64_t> worker_gone(uint32_t session);

    // The request is a suspect from now on, whose trial is on another worker than `avoided` as long
    // as another is ready. REQUIRES: it waits, and is none.
    void suspect(uint64_t id, std::optional<uint32_t> avoided = std::nullopt);
    bool is_another_ready(uint32_t session) const;
    // Whether a suspect runs.
    bool is_on_trial(uint64_t id) const;
    // It has left its worker, is no suspect any more, and waits as one whose worker is gone.
    // REQUIRES: it is on trial.
    void end_trial(uint64_t id);

    // Whether a request of this connection may wait, as far as is known without its size. Errors:
    // kResourceExhausted: max_queue requests wait already, or too many of this connection.
    Result<> check_place(FairQueue::Client client) const;

    // Queues a request of a connection that has `num_tokens` and may come to `tokens_max`.
    // Errors: as check_place(), unless the request need not wait.
    Result<> enqueue(uint64_t id,
                     uint64_t num_tokens,
                     uint64_t tokens_max,
                     FairQueue::Client client = nullptr);

    // It has got another token, and reserves what it needs for more. REQUIRES: it runs.
    void on_token(uint64_t id);

    // Positions for which it reserves room. REQUIRES: there is such a request.
    uint64_t reserved_tokens(uint64_t id) const;

    // It has left its worker for want of room, and waits as one whose worker is gone. False, and
    // nothing changed: nothing else has run there since it came. REQUIRES: it runs.
    bool give_way(uint64_t id);

    // Forgets a request and frees its room; false if there is no such request.
    bool remove(uint64_t id);

    // The request is of another connection from now on; nothing if there is no such request.
    void change_client(uint64_t id, FairQueue::Client client);

    // Takes the next request that can run now, reserves its room, and says where it runs.
    std::optional<Admission> admit_next();

    // The worker a request runs on; nothing while it waits or if it is unknown.
    std::optional<uint32_t> session_of(uint64_t id) const;

    // Adds what the queue and its workers hold: to `status`, and to each attention worker in it.
    void fill_status(client::Status& status) const;

    const std::vector<Worker>& workers() const { return workers_; }
    size_t num_queued() const { return queue_.size() + suspects_.size(); }
    size_t num_running() const { return requests_.size() - num_queued(); }

  private:
    struct Entry {
        uint64_t num_tokens = 0;
        uint64_t tokens_max = 0;
        uint64_t blocks = 0;  // That these reserve.
        uint64_t order = 0;   // Of arrival.
        FairQueue::Client client = nullptr;
        std::optional<uint32_t> session = std::nullopt;
        // Worker::num_given with it, if no other ran there when it came; else 0.
        uint64_t alone_as = 0;
        bool is_suspect = false;
        std::optional<uint32_t> avoided = std::nullopt;  // Of a suspect.
    };

    bool is_before(uint64_t a, uint64_t b) const;
    void put_in_front(std::span<const uint64_t> ids);
    void leave_worker(Entry& entry);
    Admission give(uint64_t id, uint32_t session);
    std::optional<Admission> next_trial();
    bool awaits_idle_worker() const;
    bool do_some_go_on() const;
    bool may_try(const Entry& suspect, uint32_t session) const;
    std::optional<uint32_t> idle_worker(const Entry& suspect) const;
    std::optional<uint32_t> kept_worker() const;
    std::optional<uint32_t> best_worker(uint64_t blocks) const;
    Result<> check_full(FairQueue::Client client) const;

    const uint64_t max_queue_;
    const uint32_t max_sequences_;
    const Reservation reservation_;
    uint64_t next_order_ = 0;
    bool is_still_ = false;
    std::vector<Worker> workers_;
    FairQueue queue_;
    std::deque<uint64_t> suspects_;  // That wait, in the order of their arrival; not in queue_.
    uint64_t num_passes_ = 0;        // Others that went before the first of them.
    std::unordered_map<uint64_t, Entry> requests_;
};

}  // namespace afd::daemon
