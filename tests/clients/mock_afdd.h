// SPDX-License-Identifier: Apache-2.0
#pragma once

// MockAfdd: a thread that speaks proto/client.proto on a Unix socket in a directory of its own and
// answers by script: which chunk when, and how it ends. With its known delays the tests check what
// the clients measure and say. It is no afdd: it checks little and knows no model.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/client.pb.h"
#include "proto/frame.h"
#include "proto/status.h"
#include "tests/temporary_directory.h"

namespace afd::test {

using std::chrono::milliseconds;

struct MockChunk {
    milliseconds after{0};  // Since the previous chunk, or since the request for the first.
    uint32_t num_tokens = 1;
    std::string text = "x";
};

struct MockAnswer {
    enum class End {
        kFinished,    // Finished (LENGTH), right after the last chunk.
        kError,       // Error with `error`.
        kNothing,     // Silence.
        kDisconnect,  // The connection is closed.
        kGarbage,     // Bytes that are no frame.
        kRefusal,     // An error of the whole connection (request 0), which is then closed.
    };
    std::vector<MockChunk> chunks;
    End end = End::kFinished;
    afd::Error error{Code::kResourceExhausted, "the mock is full"};
    bool accept = true;
    // Finished tells this many tokens more than were sent.
    uint32_t num_tokens_invented = 0;
    // Of the prompt, which has 3 tokens: told with Finished.
    uint32_t num_cached_tokens = 0;
};

// `num_chunks` chunks, the first after `first`, the others `gap` apart.
MockAnswer steady_answer(size_t num_chunks, milliseconds first, milliseconds gap);

class MockAfdd {
  public:
    // What to answer to the `index`-th Generate since the start (0, 1, ...).
    using Plan = std::function<MockAnswer(size_t index, const client::Generate& request)>;

    // Listens at <directory>/afd/<instance>.sock when this returns; `directory` is fit for
    // XDG_RUNTIME_DIR and removed at the end.
    explicit MockAfdd(Plan plan, std::string instance = "default");
    ~MockAfdd();

    MockAfdd(const MockAfdd&) = delete;
    MockAfdd& operator=(const MockAfdd&) = delete;

    const std::string& directory() const { return directory_.path(); }
    std::string socket_path() const { return directory_.path("afd/" + instance_ + ".sock"); }

    // What a status request gets. Not to be called while a client may ask.
    void set_status(const client::Status& status) { status_ = status; }
    // As for set_status(): workers stay what they are whatever their run_flag; else they are
    // "halted" with 0 and "ready" with 1.
    void keep_worker_states() { keeps_worker_states_ = true; }
    // As for set_status(): the connection is closed behind the `count`-th answer about a context.
    void close_after_contexts(size_t count) { num_contexts_max_ = count; }
    // As for set_status(): no client gets a trace; else each gets an event of attention 0.
    void refuse_traces() { refuses_traces_ = true; }
    // As for set_status(): what a Resume is answered.
    void refuse_resumes(afd::Error error) { resume_error_ = std::move(error); }
    // As for set_status(): a trace has no event.
    void be_idle() { is_idle_ = true; }
    // As for set_status(): a Stop is answered, and nothing ends.
    void stay_when_stopped() { stays_when_stopped_ = true; }
    // As for set_status(): at a Stop, the last Drain is told this error.
    void cut_off_when_stopped(std::string error) { cut_off_ = std::move(error); }
    // How long a Drain takes that comes from now on.
    void set_drain_time(milliseconds time) { drain_time_ = time; }
    // As for set_status(): what is to come at whatever time comes with the `count`-th Ping.
    void answer_all_at_ping(size_t count) { ping_that_ends_waits_ = count; }
    // The thread does nothing for `duration`, once, starting `after` the `index`-th Generate came:
    // neither reads nor sends, as a stopped process. The end of the mock ends it.
    void stall_once(size_t index, milliseconds after, milliseconds duration);

    std::vector<client::Generate> generates() const;
    size_t num_cancels() const;
    // What run_flags were set to, one after the other.
    std::vector<bool> run_flags() const;

  private:
    using Clock = std::chrono::steady_clock;
    struct Peer {
        int fd = -1;
        FrameReader reader;
    };
    struct Event {
        uint64_t peer_id = 0;
        uint64_t request_id = 0;  // 0: belongs to no request.
        std::function<void()> action;
    };

    void serve();
    void wait_and_read();
    void accept_peer();
    void read_peer(uint64_t peer_id);
    void handle(uint64_t peer_id, const client::Request& request);
    void ping(uint64_t peer_id, uint64_t request_id);
    void resize(uint64_t peer_id, const client::Request& request);
    void upgrade(uint64_t peer_id, uint64_t request_id);
    void drain(uint64_t peer_id, uint64_t request_id);
    void stop(uint64_t peer_id, uint64_t request_id);
    void context(uint64_t peer_id, const client::Request& request);
    void trace(uint64_t peer_id, uint64_t request_id);
    void generate(uint64_t peer_id, const client::Request& request);
    void cancel(uint64_t peer_id, const client::Request& request);
    void schedule_end(uint64_t peer_id,
                      uint64_t request_id,
                      Clock::time_point when,
                      const MockAnswer& answer,
                      uint32_t num_tokens);
    void at(Clock::time_point when,
            uint64_t peer_id,
            uint64_t request_id,
            std::function<void()> action);
    void send(uint64_t peer_id, const client::Response& response);
    void send_bytes(uint64_t peer_id, const std::string& bytes);
    void send_done(uint64_t peer_id, uint64_t request_id);
    void disconnect(uint64_t peer_id);

    Plan plan_;
    std::string instance_;
    const test::TemporaryDirectory directory_;
    client::Status status_;
    bool keeps_worker_states_ = false;
    size_t num_contexts_max_ = SIZE_MAX;
    bool refuses_traces_ = false;
    afd::Error resume_error_{Code::kNotFound, "the mock keeps nothing"};
    bool is_idle_ = false;
    bool stays_when_stopped_ = false;
    size_t ping_that_ends_waits_ = SIZE_MAX;
    std::string cut_off_;
    milliseconds drain_time_{0};
    int listener_ = -1;
    int wake_fd_ = -1;
    std::atomic<bool> stopping_{false};

    // Of the thread.
    std::map<uint64_t, Peer> peers_;
    uint64_t next_peer_id_ = 1;
    std::multimap<Clock::time_point, Event> events_;
    std::map<uint64_t, uint32_t> num_tokens_sent_;  // By request_id.
    size_t num_contexts_ = 0;
    size_t num_pings_ = 0;
    uint64_t drain_id_ = 0;  // Of the last Drain.

    mutable std::mutex mutex_;  // Guards what follows.
    std::vector<client::Generate> generates_;
    size_t num_cancels_ = 0;
    std::vector<bool> run_flags_;
    size_t stall_index_ = SIZE_MAX;
    milliseconds stall_after_{0};
    milliseconds stall_duration_{0};

    std::thread thread_;  // Last: starts when everything else is there.
};

}  // namespace afd::test
