// SPDX-License-Identifier: Apache-2.0
#pragma once

// Predecessor: the afdd whose place this one is to take; the new end of handover.proto.
//
// What it offers is taken before the loop runs; listen() begins the rest. It may end at any time,
// and this one then serves with what it has got.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/gateway/session/handed_connection.h"
#include "daemon/handover/handover_wire.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/handover.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// No call comes within one of the Predecessor's.
class PredecessorListener : public Heir {
  public:
    // Connections are this one's to accept.
    virtual void on_go() = 0;
    virtual void on_remaining(const handover::Remaining& remaining) = 0;
    // kUnavailable: it has ended. Any other: what it says cannot be read; it has been told, and
    // sees that nobody hears it any more. It may destroy the Predecessor.
    virtual void on_predecessor_gone(const Error& why) = 0;
};

class Predecessor {
  public:
    // Waits for the offer. `socket`: what Successor::kVariable names.
    // Errors: kFailedPrecondition: it speaks another version. kDataLoss, kUnavailable,
    // kDeadlineExceeded: it is no such socket, or says nothing.
    static Result<std::unique_ptr<Predecessor>> meet(UniqueFd socket);

    // Instead: this process ends before it can read the offer, and says why. `socket` as above.
    static void refuse(UniqueFd socket, const std::string& why);

    const handover::Offer& offer() const { return offer_; }
    // Once.
    UniqueFd take_lock() { return std::move(lock_); }
    // The listening socket of a door with this address; none: it has no such one. Once.
    UniqueFd take_door(std::string_view kind, std::string_view address);
    // Those that were not taken: nobody listens there when the old one does not.
    void drop_doors();

    // REQUIRES: `loop` and `listener` outlive the object.
    void listen(EventLoop& loop, PredecessorListener& listener);
    bool has_gone() const { return has_gone_; }

    // Nothing of these to one that is gone. `text`: one line; empty: a sign of life.
    void say_progress(const std::string& text);
    void say_ready(std::string_view version, const std::vector<std::string_view>& kept);
    void say_ending();
    // This one ends: why. Also without a loop.
    void say_failed(const std::string& message);

  private:
    explicit Predecessor(UniqueFd socket);
    Result<> read_offer();
    void on_end(const Error& error);
    void send(const handover::ToOld& message);
    Result<> take_messages();
    Result<> on_message(handover::ToNew& message);
    Result<> on_connection(const handover::Connection& connection);
    void on_stream(handover::Stream& stream);

    ControlChannel channel_;
    handover::Offer offer_;
    UniqueFd lock_;
    std::vector<UniqueFd> doors_;  // As the offer's; taken ones are none.
    PredecessorListener* listener_ = nullptr;
    std::unique_ptr<HandoverWire> wire_;
    bool has_gone_ = false;
    // These belong to the Connection or Stream that comes next.
    std::string unread_;
    std::string unsent_;
    std::vector<std::string> chunks_;
};

}  // namespace afd::daemon
