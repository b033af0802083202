// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventLoop, Timer, NextTurn, FdWatcher, SignalWatcher: libuv handles with C++ lifetimes.
//
// A watcher may be destroyed at any time on the loop's thread, also inside its own callback; its
// callback is never called afterwards. The loop must outlive its watchers. One thread per loop.
// An fd must be closed after its watcher is destroyed.

#include <uv.h>

#include <cstdint>
#include <functional>

namespace afd::daemon {

class EventLoop {
  public:
    EventLoop();
    // Runs the loop until every handle is closed. REQUIRES: all watchers are destroyed.
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    // Runs until stop(). (It does not end by itself while a watcher exists.)
    void run();
    // Only on the loop's thread.
    void stop();

    // CLOCK_MONOTONIC, as of the current iteration.
    uint64_t now_ms() const;

    uv_loop_t* uv() { return &loop_; }

  private:
    uv_loop_t loop_;
};

class Timer {
  public:
    Timer(EventLoop& loop, std::function<void()> callback);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    // Fires after `after_ms`, then every `repeat_ms` if that is not 0. Replaces an earlier start.
    void start(uint64_t after_ms, uint64_t repeat_ms = 0);
    void stop();
    bool is_active() const;

  private:
    struct Block;
    Block* block_;
};

// Work that goes on in the loop's next turn, behind whatever else is ready by then: whoever has
// more to do than others should wait for does a part and asks for another turn.
class NextTurn {
  public:
    NextTurn(EventLoop& loop, std::function<void()> callback);
    ~NextTurn();
    NextTurn(const NextTurn&) = delete;
    NextTurn& operator=(const NextTurn&) = delete;

    // Calls back once, in the next turn; again and again is as once.
    void ask();
    bool is_asked() const;

  private:
    struct Block;
    Block* block_;
};

class FdWatcher {
  public:
    // `callback` gets UV_READABLE | UV_WRITABLE bits. A hang-up arrives as what is watched for, so
    // that a read or a write reports it. So does an error, as both, and ends the watching until the
    // next watch(), also if that is for the same events.
    FdWatcher(EventLoop& loop, int fd, std::function<void(int events)> callback);
    ~FdWatcher();
    FdWatcher(const FdWatcher&) = delete;
    FdWatcher& operator=(const FdWatcher&) = delete;

    // Watches for exactly these events; 0: none. Cheap if nothing changes.
    void watch(int events);

  private:
    struct Block;
    Block* block_;
};

class SignalWatcher {
  public:
    SignalWatcher(EventLoop& loop, int signal, std::function<void()> callback);
    ~SignalWatcher();
    SignalWatcher(const SignalWatcher&) = delete;
    SignalWatcher& operator=(const SignalWatcher&) = delete;

  private:
    struct Block;
    Block* block_;
};

}  // namespace afd::daemon
