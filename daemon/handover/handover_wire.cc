// SPDX-License-Identifier: Apache-2.0
#include "daemon/handover/handover_wire.h"

namespace afd::daemon {

HandoverWire::HandoverWire(EventLoop& loop,
                           ControlChannel& channel,
                           std::function<Result<>()> on_readable,
                           std::function<void(const Error&)> on_end)
    : channel_(channel),
      on_readable_(std::move(on_readable)),
      on_end_(std::move(on_end)),
      watcher_(loop, channel.fd(), [this](int events) { on_ready(events); }),
      flush_retry_(loop, [this] { flush(); }),
      end_turn_(loop, [this] {
          // The callback may destroy this, and with it the stored function and the error.
          const auto on_end_copy = on_end_;
          const Error error = ended_.error();
          on_end_copy(error);
      }) {
    watcher_.watch(UV_READABLE);
}

void HandoverWire::on_ready(int events) {
    if ((events & UV_WRITABLE) != 0) flush();
    if ((events & UV_READABLE) != 0) read();
}

void HandoverWire::read() {
    if (!ended_.ok()) return;
    const Result<> got = channel_.read(ControlChannel::kReadBytesPerTurn);
    is_at_end_ = !got.ok();
    // What it said before its end counts.
    const Result<> taken = on_readable_();
    if (!taken.ok()) {
        end(taken.error());
    } else if (!got.ok()) {
        end(got.error());
    }
}

void HandoverWire::flush() {
    if (!ended_.ok()) return;
    if (const Result<> sent = channel_.flush(); !sent.ok()) {
        // It may have said something before it went: that is read first.
        read();
        end(sent.error());
        return;
    }
    watcher_.watch(UV_READABLE | flush_retry_.after(channel_));
}

void HandoverWire::end(const Error& error) {
    if (!ended_.ok()) return;
    ended_ = error;
    is_at_end_ = true;
    watcher_.watch(0);
    end_turn_.ask();
}

}  // namespace afd::daemon
