// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/cluster_link.h"

#include <utility>

#include "daemon/cluster/cluster_protocol.h"
#include "proto/failure.h"

namespace afd::daemon {

ClusterLink::ClusterLink(EventLoop& loop, ClusterChannel channel, std::string peer, OnRead on_read)
    : channel_(std::move(channel)),
      peer_(std::move(peer)),
      on_read_(std::move(on_read)),
      watcher_(loop, channel_.fd(), [this](int events) { on_socket(events); }),
      silence_(
          loop,
          [this] { end(deadline_exceeded("nothing was heard of it for {} ms", with(kSilentMs))); }),
      failed_(loop, [this] { end(failure_); }) {
    silence_.start(kSilentMs);
    watch();
}

void ClusterLink::watch() {
    const int read = is_paused_ ? 0 : UV_READABLE;
    watcher_.watch(is_over_ ? 0 : read | (channel_.wants_write() ? UV_WRITABLE : 0));
}

void ClusterLink::on_socket(int events) {
    const bool was_established = channel_.is_established();
    if ((events & UV_WRITABLE) != 0) flush();
    // Whoever connects may speak first: nothing need come for it to know.
    const bool is_news = channel_.is_established() && !was_established;
    if (((events & UV_READABLE) == 0 && !is_news) || is_over_) return;
    const Result<> read = channel_.read(ClusterChannel::kReadBytesPerTurn);
    if (!read.ok()) {
        end(read.error());
        return;
    }
    silence_.start(kSilentMs);
    watch();
    // A copy: the call may destroy this object.
    const OnRead on_read = on_read_;
    on_read({});
}

void ClusterLink::flush() {
    const Result<> sent = channel_.flush();
    if (!sent.ok() && !is_over_) {
        // Not within this call: the owner is in the middle of something.
        failure_ = sent.error();
        failed_.ask();
        watcher_.watch(0);
        return;
    }
    watch();
}

void ClusterLink::pause() {
    if (is_paused_ || is_over_) return;
    is_paused_ = true;
    silence_.stop();
    watch();
}

void ClusterLink::go_on() {
    if (!is_paused_ || is_over_) return;
    is_paused_ = false;
    silence_.start(kSilentMs);
    watch();
}

void ClusterLink::end(const Error& error) {
    if (is_over_) return;
    is_over_ = true;
    silence_.stop();
    watch();
    const OnRead on_read = on_read_;
    on_read(Error{error.code, peer_ + ": " + error.message});
}

}  // namespace afd::daemon
