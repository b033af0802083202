// SPDX-License-Identifier: Apache-2.0
#pragma once

// TextThread: where long texts of clients are read and tokenized. A megabyte takes some 30 ms, for
// which nobody else would get a token if the loop did it. It has a tokenizer of its own, because
// each keeps a cache of pieces and serves one thread at a time.

#include <cstddef>
#include <utility>

#include "daemon/loop/background_thread.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::daemon {

struct TextThread {
    // So many bytes take the loop less than a millisecond also where a tokenizer is at its slowest:
    // text_thread_test.cc.
    static constexpr size_t kShortBytesMax = 4096;

    TextThread(EventLoop& loop, model::Tokenizer of_its_own)
        : tokenizer(std::move(of_its_own)), thread(loop) {}

    model::Tokenizer tokenizer;  // Of the thread's work alone. Before the thread, which uses it.
    BackgroundThread thread;
};

}  // namespace afd::daemon
