// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterChannel: one end of a TLS connection between two hosts of a cluster. Frames
// (proto/frame.h) over a TCP socket, as ControlChannel has them over a Unix one, without
// descriptors.
//
// It knows no event loop: the owner watches fd() and calls read() when it is readable, and flush()
// when it is writable and wants_write(). Both carry the handshake on, so the owner asks
// wants_write() again after each of them and after queue(). Used by one thread at a time.
//
// Whoever has a certificate of the CA is let in; which host it must be is for the owner to compare
// with peer_name(). The connecting end is established before the other one has looked at its
// certificate: a refusal reaches it with a later read().
//
// The owner gives up an end that is not established in time, and one whose peer is silent: a peer
// that is there and says nothing is no error here. A peer that is gone is found by TCP within
// kGoneAfterMs. Writing to a peer that is gone raises SIGPIPE, which the process must ignore
// (set_up_logging()).
//
// A peer's bytes are not believed: what is no TLS 1.3, a wrong length or an unparsable message end
// the channel with kDataLoss. Once it has ended every call says so again.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/loop/unique_fd.h"
#include "proto/frame.h"
#include "proto/status.h"

struct ssl_st;

namespace afd::daemon {

class ClusterChannel {
  public:
    // The end that was connected to, and the end that connects. Nothing is sent yet.
    // REQUIRES: `socket` is a TCP socket that is connected or connecting.
    // Errors: kUnavailable: the socket cannot be used.
    static Result<ClusterChannel> accept(UniqueFd socket, const ClusterIdentity& identity);
    static Result<ClusterChannel> connect(UniqueFd socket, const ClusterIdentity& identity);

    int fd() const { return socket_.get(); }

    // What an owner with others to serve reads in one turn of its loop.
    static constexpr size_t kReadBytesPerTurn = size_t{1} << 20;

    static constexpr int kGoneAfterMs = 10'000;

    // Takes what the socket holds now, and no more once `bytes_max` are taken; the rest keeps fd()
    // readable. Errors: kUnavailable: the peer closed its end, or the connection failed.
    // kPermissionDenied: one end refused the other's certificate. kDataLoss: see above.
    Result<> read(size_t bytes_max = SIZE_MAX);

    // Parses the next whole frame into `message`; false: none is complete yet. Frames that came
    // before the end are still delivered after read() reported it.
    // Errors: kDataLoss: no such message, or a frame of more than kFrameBytesMax.
    template <typename Message>
    Result<bool> next(Message& message) {
        return reader_.next(message, "message of another host");
    }

    // Queues one message, of at most kFrameBytesMax. Nothing is sent before flush().
    template <typename Message>
    void queue(const Message& message) {
        append_frame(message, queued_);
    }

    // Sends what the socket takes now; of the queue nothing before is_established().
    // Errors: as of read().
    Result<> flush();
    // A flush() would get further once fd() is writable.
    bool wants_write() const {
        return !end_ && (tls_wants_write_ || (is_established() && queued_bytes() > 0));
    }
    size_t queued_bytes() const { return queued_.size() - num_sent_; }

    // The handshake is over, and the peer has shown a certificate of the CA.
    bool is_established() const { return !peer_name_.empty(); }
    // The host that the peer's certificate is for. REQUIRES: is_established().
    const std::string& peer_name() const;

  private:
    struct FreeTls {
        void operator()(ssl_st* tls) const;
    };
    using Tls = std::unique_ptr<ssl_st, FreeTls>;

    ClusterChannel(UniqueFd socket, Tls tls, bool connects)
        : socket_(std::move(socket)), tls_(std::move(tls)), tls_wants_write_(connects) {}

    static Result<ClusterChannel> make(UniqueFd socket,
                                       const ClusterIdentity& identity,
                                       bool connects);

    Result<> shake_hands();
    Result<> receive(size_t bytes_max);
    void drop_sent();
    Result<> wait_or_end(int status);
    Error tls_failure() const;

    UniqueFd socket_;
    Tls tls_;
    FrameReader reader_;
    std::string queued_;  // Frames; the first num_sent_ bytes have left.
    size_t num_sent_ = 0;
    bool tls_wants_write_;
    std::string peer_name_;  // Empty until it is verified.
    std::optional<Error> end_;
};

}  // namespace afd::daemon
