// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClientConnection: the session of a client that speaks client.proto over a stream socket: frames
// in, frames out.
//
// Bytes that are no valid frames cost only this connection: it is told why, and closed. So it is
// when a frame stays half sent for too long, or what it sent is what fills the InputBudget. What it
// sends at once is taken a part each turn of the loop (turn_budget.h); meanwhile no more is read.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/gateway/session/client_session.h"
#include "daemon/gateway/session/input_budget.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/stream_socket.h"
#include "daemon/loop/turn_budget.h"
#include "daemon/loop/unique_fd.h"
#include "proto/client.pb.h"
#include "proto/frame.h"

namespace afd::daemon {

class ClientConnection final : public ClientSession, private InputBudget::Holder {
  public:
    // `budget`: shared with the other connections, also of a front end that is gone.
    // REQUIRES: `loop` and `owner` outlive the object.
    ClientConnection(EventLoop& loop,
                     UniqueFd socket,
                     ClientIdentity identity,
                     SessionOwner& owner,
                     std::shared_ptr<InputBudget> budget);
    ~ClientConnection() override { budget_->hold(*this, 0); }

    const ClientIdentity& identity() const override { return identity_; }
    void hold_input(size_t bytes) override;
    void release_input() override;
    void send(const client::Response& response) override;
    void flush() override;
    size_t queued_bytes() const override { return socket_.unsent_bytes(); }
    // Half a frame has a deadline, unless nothing is read.
    bool is_within_request() const override { return reads_on() && reader_.held_bytes() > 0; }
    void close() override;
    bool is_open() const override { return socket_.is_open(); }
    std::optional<HandedConnection> hand_over() override;
    void stay() override;

    // The connection comes from another afdd, which has read and not said these bytes. Before its
    // owner has it (SessionOwner::adopt_handed()).
    void begin_with(std::string_view unread, std::string_view unsent);

  private:
    void on_ready(int events);
    void read();
    // Serves the frames that are read; false: not all of them in this turn, or it is closed.
    bool serve_frames(TurnBudget& budget);
    bool serve(std::string_view body);
    // It is kept for the afdd that takes the place of this one.
    bool put_off(const client::Request& request, std::string_view body);
    bool reads_on() const;
    void watch();
    void end();
    void note_half_frame();
    void on_half_frame_timeout();
    void give_up(const std::string& why) override;
    // Tells the client why, and closes.
    void refuse(Code code, const std::string& why);

    StreamSocket socket_;
    const ClientIdentity identity_;
    SessionOwner& owner_;
    const std::shared_ptr<InputBudget> budget_;
    FrameReader reader_;
    Timer half_frame_;         // Ends the wait for the rest of a frame.
    bool is_late_ = false;     // The time is over, and what has arrived is read a last time.
    bool has_served_ = false;  // A frame, since the timer was looked at.
    bool is_held_ = false;     // No frame is served until release_input().
    size_t text_bytes_ = 0;    // Of the request for which it is held.
    // Frames that are kept for the next afdd, and their request_ids.
    std::string put_off_;
    std::vector<uint64_t> ids_put_off_;
    NextTurn next_turn_;  // Asked: whole frames wait in the reader.
    std::unique_ptr<FdWatcher> watcher_;
};

}  // namespace afd::daemon
