// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxWorker: paths to other workers, and a thread that receives: who of the two threads of a worker
// brings in what arrives, and where they sleep. What a path is: ucx_paths.h. It knows bytes and
// nothing of the protocol.
//
// A path to a worker of the same host goes through memory instead of UCX, if the configuration says
// so (schedule/near); with everything that is said here, it is a path like the others.
//
// What arrives is handed to the receiver, who stores it or does not. The transports that UCX may
// use are given by name, as in UCX_TLS.
//
// One lock guards all of UCX, and whatever the receiver keeps for it: callbacks run under it, on
// the thread that receives, or on one that calls try_progress(). Sending posts on the caller's
// thread; what UCX cannot post at once goes on from the thread that receives.
//
// Who takes in what arrives, and what the worker's own thread does then (taker_watch.h):
//
//   own thread   is woken by arrivals, and makes turns; the data thread computes
//   spinner      rests; at a tick connections and heartbeats, and no message
//   sleeper      rests; at a tick a few turns besides, and what wakes the sleeper is armed again
//
// A call into UCX that does not come back holds the lock, or the thread that receives, for good.
// Whoever waits for either for stuck_us ends the process (UcxConfig).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/status.h"
#include "schedule/ucx/taker_watch.h"
#include "schedule/ucx/turn_watch.h"
#include "schedule/ucx/ucx_config.h"
#include "schedule/ucx/ucx_message.h"
#include "schedule/ucx/ucx_receiver.h"

namespace afd::schedule {

class UcxPaths;

class UcxWorker {
  public:
    using Path = UcxPath;
    using Lock = std::unique_lock<std::timed_mutex>;
    static constexpr uint64_t kTickUs = 3000;
    static constexpr uint64_t kRestUs = 1000;
    static constexpr size_t kStrangersMin = 64;

    // `listens`: it takes paths from others: from all of `num_peers` at once, as they come when it
    // is new, and from kStrangersMin in any case. More than so many do not wait to be adopted.
    // Errors: kUnavailable: UCX refused, for instance because there is no such transport.
    // kInvalidArgument: `host` is no address.
    static Result<std::unique_ptr<UcxWorker>> make(const UcxConfig& config,
                                                   bool listens,
                                                   size_t num_peers = 0);
    ~UcxWorker();
    UcxWorker(const UcxWorker&) = delete;
    UcxWorker& operator=(const UcxWorker&) = delete;

    // What a peer connects to (ucx_address.h); empty if this one does not listen.
    const std::vector<std::byte>& address() const;

    // Starts the thread. `receiver` outlives stop().
    void start(UcxReceiver& receiver);
    // Ends the thread: nothing is received any more. Call it before the receiver's end.
    void stop();
    // Lets on_tick() run soon. Any thread.
    void wake();

    Lock lock() const;
    // A turn on the caller's thread, if nobody else is at it. While it comes back for more, or
    // sleeps here, the worker's own thread rests (taker_watch.h), for kRestUs at a time.
    void try_progress();
    // Sleeps until `eventfd` is rung, something arrives, or the time is over; not at all if
    // something is there, or somebody else is at it. One thread, that of try_progress().
    void sleep(int eventfd, uint64_t timeout_us);
    // How often the thread has come round, at least every kTickUs unless UCX holds it. Any thread.
    uint64_t num_turns() const {
        // Relaxed: it only counts.
        return num_turns_.load(std::memory_order_relaxed);
    }

    // All below: under the lock.
    // Errors: kUnavailable, with UCX's reason; kDataLoss: the address is none. That the peer is not
    // there shows later, as a failed path.
    // `may_be_near`: through memory, if the peer is a neighbour.
    Result<std::shared_ptr<Path>> connect(std::span<const std::byte> address,
                                          bool may_be_near = true);
    // A path that a peer opened is used from here on.
    void adopt(Path& path);
    // Closes it for good, outside of a callback; what was being sent is let go of.
    void close(Path& path);
    // Posts a message. Whether it arrives is not known here: a path that failed says so.
    // REQUIRES: the message outlives its num_in_flight.
    void send(Path& path, UcxMessage& message);
    static bool has_failed(const Path& path);
    // Whether it goes through memory of this host.
    static bool is_near(const Path& path);
    // Nothing more is sent on it; close() may follow outside of a callback.
    static void fail(Path& path);
    // One turn. Returns whether anything happened.
    bool progress();

  private:
    UcxWorker(const UcxConfig& config, std::unique_ptr<UcxPaths> paths);
    [[noreturn]] void end_stuck(const std::string& what) const;
    void run();
    void take_turns(int num_max);
    int num_own_turns(Taker taker, bool was_awake, bool was_away) const;
    void keep_armed();
    void rest(uint64_t tick_us);
    void look_and_sleep(uint64_t tick_us);
    void end_sleep(bool have_neighbours_news);
    void take_ring() const;

    std::unique_ptr<UcxPaths> paths_;
    UcxReceiver* receiver_ = nullptr;
    const uint64_t stuck_us_;
    void (*const end_stuck_)(const std::string& why);
    mutable std::timed_mutex mutex_;
    int wake_fd_ = -1;
    std::atomic<bool> wants_tick_{false};
    std::atomic<bool> is_over_{false};
    std::atomic<uint64_t> num_turns_{0};
    TakerWatch taker_;
    bool takes_all_ = false;      // Whoever calls try_progress() and sleep() has slept.
    uint32_t num_misses_ = 0;     // And found the lock taken.
    TurnWatch turns_{stuck_us_};  // And looks after the own thread.
    std::thread thread_;
};

}  // namespace afd::schedule
