// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerControl: a worker's tie to afdd. It connects, is welcomed, and then runs the control
// thread (a libuv loop) that moves commands and events between the control socket and the data
// thread's port. Both worker programs use it in this order, all on the main thread, which becomes
// the data thread:
//
//   connect()   -> welcome(), own_doorbell_fd(), peer_doorbell_fds()
//   start()        the control thread runs; from here on the end of afdd ends this process
//   ... attach segments, load weights; on failure fail() ...
//   ask_voided()   FFN; from here on nothing more is voided (R12)
//   ready()        afdd may send sequences
//   ... the data loop, over port(), until kShutdown ...
//   finish()       sends what is left, joins the control thread; then return 0 from main
//
// No worker outlives afdd: a spawned one has PR_SET_PDEATHSIG (SIGKILL), and every one sees the
// end of the control socket and exits with kExitAfddGone at once, whatever its data thread does.
// That is safe at any point: afdd owns the segments, and it is gone.
//
// Not here: windows, weights, heartbeats (the data thread writes its own).

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "daemon/control/worker_port.h"
#include "model/grammar/vocabulary_trie.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/ucx/ucx_address_book.h"

namespace afd::daemon {

// Exit status of a worker whose afdd is gone; only a shell may be left to read it.
inline constexpr int kExitAfddGone = 8;
// A file that it maps is damaged: whatever it worked on, it is not to blame.
inline constexpr int kExitDamagedFile = 9;
// UCX does not come back; likewise.
inline constexpr int kExitStuckUcx = 10;
// Exit status of a worker after fail().
inline constexpr int kExitWorkerFailed = 1;

class WorkerControl {
  public:
    struct Options {
        control::Role role = control::ROLE_UNSPECIFIED;
        uint32_t index = 0;
        // Path of afdd's control socket (proto/socket_path.h).
        std::string control_socket;
        uint64_t handshake_timeout_ms = 10000;  // Of connect() and of ask_voided().
    };

    // Connects and exchanges Hello and Welcome; blocks at most handshake_timeout_ms.
    // Errors: kNotFound: no such socket. kUnavailable: nobody listens, or the socket closed.
    // kFailedPrecondition and others: afdd refused, with its message. kDeadlineExceeded.
    // kDataLoss: not a Welcome.
    static Result<std::unique_ptr<WorkerControl>> connect(const Options& options);
    ~WorkerControl();

    const control::Welcome& welcome() const;

    // The worker's own doorbell eventfd (R9); open as long as this object lives.
    int own_doorbell_fd() const;
    // The peers' doorbells: FFN ranks 0..F-1 for an attention worker, sessions 0..A-1 for an FFN
    // worker. Open as long as this object lives.
    std::span<const int> peer_doorbell_fds() const;

    // The segments that afdd has handed over, by name. Open as long as this object lives.
    const std::map<std::string, int>& segment_fds() const;

    // Who has the places of the instance, kept up to date from start() on; null: workers talk by
    // shared memory. Lives as long as this object.
    schedule::UcxAddressBook* places() const;
    // Tells afdd where this FFN worker listens: a sockaddr. After start(), before ready().
    void listens(std::span<const std::byte> address);

    // Makes what afdd is told once a second, on the control thread. After start(). Null: nothing
    // more, and no call is left when this returns.
    using Report = std::function<control::WorkerMessage()>;
    void set_report(Report report);

    // What the text of a constrained request is made of. Before ready(); without it such requests
    // are refused.
    void set_vocabulary(std::shared_ptr<const model::VocabularyTrie> vocabulary);

    // Starts the control thread.
    void start();

    // The data thread's end of the rings.
    WorkerPort& port();

    // Tells afdd that this FFN worker has its weights, and waits for what it is not to execute
    // (R12): all that this process has to acknowledge before ready(), and before it looks at a
    // round. Once, after start(). Errors: kDeadlineExceeded.
    Result<control::Voided> ask_voided();

    // Tells afdd that this worker serves from now on. Leaves once the control thread runs, before
    // any event that the caller pushes into port() afterwards.
    void ready(const control::Ready& ready);

    // Tells afdd why this worker cannot go on, prints it, and exits with kExitWorkerFailed.
    [[noreturn]] void fail(const Error& error);

    // Sends the events that are still in the ring, then ends the control thread.
    void finish();

  private:
    struct State;
    explicit WorkerControl(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace afd::daemon
