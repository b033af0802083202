// SPDX-License-Identifier: Apache-2.0
#pragma once

// ControlChannel: one end of the control socket between afdd and a worker. Frames of
// control.proto (proto/frame.h) and file descriptors (SCM_RIGHTS) over a Unix stream socket.
//
// It knows no event loop: the owner watches fd() (uv_poll: libuv's pipes cannot pass eventfds)
// and calls read() when it is readable, flush() when it is writable and wants_write(). Used by
// one thread at a time.
//
// Descriptors travel beside bytes, at most 250 with one sendmsg (the kernel's limit is 253), so
// a frame with many is sent in several pieces; the receiver finds them, in order, in the queue of
// take_fds() by the time the whole frame has arrived.
//
// A peer's bytes are not believed: a wrong length, an unparsable message, lost descriptors
// (MSG_CTRUNC) or too many unclaimed ones end the channel with kDataLoss.

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/loop/unique_fd.h"
#include "proto/frame.h"
#include "proto/status.h"

namespace afd::daemon {

// Hello.version; raise it with every incompatible change of control.proto.
inline constexpr uint32_t kControlVersion = 8;

class ControlChannel {
  public:
    // An FFN worker of 1,024 sessions gets their doorbells and its own, three segments of each and
    // four of its own.
    static constexpr size_t kFdsMax = 4200;

    // `fds_max`: unclaimed descriptors that the peer may send; afdd expects none of a worker, who
    // could fill its table with them. REQUIRES: `socket` is a connected Unix stream socket; it is
    // made non-blocking.
    explicit ControlChannel(UniqueFd socket, size_t fds_max = kFdsMax);

    int fd() const { return socket_.get(); }

    // What an owner with others to serve reads in one turn of its loop.
    static constexpr size_t kReadBytesPerTurn = size_t{1} << 20;

    // Takes what the socket holds now, and no more once `bytes_max` are taken: a peer that writes
    // as fast as it is read would never let go. Nor more while another sendmsg could bring more
    // descriptors than `fds_max`: those that are there are to be claimed first. Errors:
    // kUnavailable: the peer closed its end. kDataLoss: see above.
    Result<> read(size_t bytes_max = SIZE_MAX);

    // Parses the next whole frame into `message`; false: none is complete yet. Frames that came
    // before the peer closed are still delivered after read() reported it.
    // Errors: kDataLoss.
    template <typename Message>
    Result<bool> next(Message& message) {
        return reader_.next(message, "control message");
    }

    // Removes and returns the oldest `count` received descriptors.
    // Errors: kDataLoss if fewer have come.
    Result<std::vector<UniqueFd>> take_fds(size_t count);

    // Queues one message, with descriptors that stay the caller's and must stay open until
    // wants_write() is false. Nothing is sent before flush().
    template <typename Message>
    void queue(const Message& message, std::span<const int> fds = {}) {
        std::string bytes;
        append_frame(message, bytes);
        queue_bytes(std::move(bytes), fds);
    }
    // The same with descriptors of its own, which are closed when they have left.
    template <typename Message>
    void queue(const Message& message, std::vector<UniqueFd> fds) {
        std::vector<int> numbers;
        for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
        queue(message, numbers);
        num_leaving_ += fds.size();
        pieces_.back().leaving = std::move(fds);
    }

    // Sends what the socket takes now.
    // Errors: kUnavailable: the peer closed its end.
    Result<> flush();
    bool wants_write() const { return !pieces_.empty(); }
    // The last flush() found the kernel without memory, or with too many descriptors on their way:
    // the rest waits, and the socket does not tell for how long. Whoever flushes does so again
    // after kRetryMs (flush_retry.h).
    bool is_short() const { return is_short_; }
    static constexpr uint64_t kRetryMs = 10;
    size_t queued_bytes() const { return queued_bytes_; }
    // Descriptors of its own that have not left.
    size_t num_leaving() const { return num_leaving_; }

    // The peer sees the end. What has not left, and descriptors that nobody has claimed, are
    // closed. REQUIRES: nobody watches fd().
    void close();

  private:
    // Bytes that leave in one sendmsg, the descriptors with the first of them.
    struct Piece {
        std::string bytes;
        std::vector<int> fds;
        size_t sent = 0;
        std::vector<UniqueFd> leaving = {};  // To be closed behind it.
    };

    void queue_bytes(std::string bytes, std::span<const int> fds);

    UniqueFd socket_;
    size_t fds_max_;
    FrameReader reader_;
    std::deque<UniqueFd> received_fds_;
    std::deque<Piece> pieces_;
    size_t queued_bytes_ = 0;
    size_t num_leaving_ = 0;
    bool is_short_ = false;
};

}  // namespace afd::daemon
