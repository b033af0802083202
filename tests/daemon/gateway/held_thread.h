// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeldThread: a TextThread that reads nothing until the test lets it, so that what happens
// meanwhile happens in every run.

#include <future>
#include <memory>

#include "daemon/gateway/request/text_thread.h"
#include "tests/daemon/gateway/byte_tokenizer.h"

namespace afd::daemon {

class HeldThread {
  public:
    explicit HeldThread(EventLoop& loop) : texts_(loop, make_byte_tokenizer()) {
        blocker_ = texts_.thread.run([held = held_.get_future().share()] { held.wait(); }, [] {});
    }
    ~HeldThread() { release(); }

    TextThread& texts() { return texts_; }
    void release() {
        if (!is_released_) held_.set_value();
        is_released_ = true;
    }

  private:
    std::promise<void> held_;
    bool is_released_ = false;
    TextThread texts_;
    std::unique_ptr<BackgroundThread::Job> blocker_;
};

}  // namespace afd::daemon
