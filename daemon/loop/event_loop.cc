// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/event_loop.h"

#include <utility>

#include "proto/check.h"

namespace afd::daemon {

namespace {

void check(int status, const char* what) {
    AFD_ASSERT(status == 0, "%s: %s", what, uv_strerror(status));
}

// The block lives until libuv gives the handle back, so a callback may destroy its own watcher.
template <typename Block>
void close_block(Block* block) {
    auto* handle = reinterpret_cast<uv_handle_t*>(&block->handle);
    block->closed = true;
    uv_close(handle, [](uv_handle_t* closed) { delete static_cast<Block*>(closed->data); });
}

}  // namespace

EventLoop::EventLoop() {
    check(uv_loop_init(&loop_), "uv_loop_init");
}

EventLoop::~EventLoop() {
    // Once more behind a stop() that no run() has taken.
    while (uv_run(&loop_, UV_RUN_DEFAULT) != 0) {
    }
    check(uv_loop_close(&loop_), "uv_loop_close");
}

void EventLoop::run() {
    uv_run(&loop_, UV_RUN_DEFAULT);
}
void EventLoop::stop() {
    uv_stop(&loop_);
}
uint64_t EventLoop::now_ms() const {
    return uv_now(&loop_);
}

struct Timer::Block {
    uv_timer_t handle;
    std::function<void()> callback;
    bool closed = false;
};

Timer::Timer(EventLoop& loop, std::function<void()> callback)
    : block_(new Block{{}, std::move(callback)}) {
    check(uv_timer_init(loop.uv(), &block_->handle), "uv_timer_init");
    block_->handle.data = block_;
}

Timer::~Timer() {
    close_block(block_);
}

void Timer::start(uint64_t after_ms, uint64_t repeat_ms) {
    const auto on_timer = [](uv_timer_t* timer) {
        auto* block = static_cast<Block*>(timer->data);
        if (!block->closed) block->callback();
    };
    check(uv_timer_start(&block_->handle, on_timer, after_ms, repeat_ms), "uv_timer_start");
}

void Timer::stop() {
    uv_timer_stop(&block_->handle);
}

bool Timer::is_active() const {
    return uv_is_active(reinterpret_cast<const uv_handle_t*>(&block_->handle)) != 0;
}

struct NextTurn::Block {
    uv_idle_t handle;
    std::function<void()> callback;
    bool closed = false;
};

NextTurn::NextTurn(EventLoop& loop, std::function<void()> callback)
    : block_(new Block{{}, std::move(callback)}) {
    check(uv_idle_init(loop.uv(), &block_->handle), "uv_idle_init");
    block_->handle.data = block_;
}

NextTurn::~NextTurn() {
    close_block(block_);
}

void NextTurn::ask() {
    // An idle handle and no timer of 0 ms: such a timer, started in its own callback, fires again
    // in the same turn. An active one also keeps the loop from sleeping.
    const auto on_idle = [](uv_idle_t* idle) {
        auto* block = static_cast<Block*>(idle->data);
        uv_idle_stop(idle);
        if (!block->closed) block->callback();
    };
    check(uv_idle_start(&block_->handle, on_idle), "uv_idle_start");
}

bool NextTurn::is_asked() const {
    return uv_is_active(reinterpret_cast<const uv_handle_t*>(&block_->handle)) != 0;
}

struct FdWatcher::Block {
    uv_poll_t handle;
    std::function<void(int)> callback;
    bool closed = false;
    int events = 0;
};

FdWatcher::FdWatcher(EventLoop& loop, int fd, std::function<void(int events)> callback)
    : block_(new Block{{}, std::move(callback)}) {
    check(uv_poll_init(loop.uv(), &block_->handle, fd), "uv_poll_init");
    block_->handle.data = block_;
}

FdWatcher::~FdWatcher() {
    close_block(block_);
}

void FdWatcher::watch(int events) {
    // Connections ask after every flush: the same again costs no call of the kernel.
    if (events == block_->events) return;
    block_->events = events;
    if (events == 0) {
        uv_poll_stop(&block_->handle);
        return;
    }
    const auto on_poll = [](uv_poll_t* poll, int status, int ready) {
        auto* block = static_cast<Block*>(poll->data);
        // libuv watches no longer; were it remembered, the next watch() would change nothing.
        if (status < 0) block->events = 0;
        // Whoever reads or writes next meets the error and says what it is; which of the two that
        // is, a watcher cannot know.
        if (!block->closed) block->callback(status < 0 ? UV_READABLE | UV_WRITABLE : ready);
    };
    check(uv_poll_start(&block_->handle, events, on_poll), "uv_poll_start");
}

struct SignalWatcher::Block {
    uv_signal_t handle;
    std::function<void()> callback;
    bool closed = false;
};

SignalWatcher::SignalWatcher(EventLoop& loop, int signal, std::function<void()> callback)
    : block_(new Block{{}, std::move(callback)}) {
    check(uv_signal_init(loop.uv(), &block_->handle), "uv_signal_init");
    block_->handle.data = block_;
    const auto on_signal = [](uv_signal_t* watcher, int /*signal*/) {
        auto* block = static_cast<Block*>(watcher->data);
        if (!block->closed) block->callback();
    };
    check(uv_signal_start(&block_->handle, on_signal, signal), "uv_signal_start");
}

SignalWatcher::~SignalWatcher() {
    close_block(block_);
}

}  // namespace afd::daemon
