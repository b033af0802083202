// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClientSession: one client as the gateway knows it, whatever it speaks. The gateway hears Requests
// and says Responses (client.proto); how they look on the wire is the session's business.
//
// A session is one connection. It may carry many requests at once; their request_ids are chosen by
// the client, or by the session where the client's protocol has none. Closing it cancels them, but
// for those that are resumable. Everything happens on afdd's loop thread.
//
// What a client asks that is no Request (a list of models, a page) the session answers itself, and
// calls on_answered(). How to add a front end: docs/adding/client_front_end.md.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/gateway/session/handed_connection.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// Who is at the other end, as far as the front end can tell.
struct ClientIdentity {
    std::string account;  // Whom limits and fairness count, "uid 1000"; never a secret.
    std::string name;     // This connection in log lines, "pid 4711".
};

// What a session needs beside the Responses to answer a request of another session of its front
// end.
class SessionForm {
  public:
    virtual ~SessionForm() = default;
    // For another program, whose front end of this kind reads it.
    virtual std::string text() const = 0;
};

class ClientSession {
  public:
    virtual ~ClientSession() = default;

    virtual const ClientIdentity& identity() const = 0;
    // What the client calls the request that on_request() brings now, for the log; empty: nothing
    // but its number.
    virtual std::string_view request_name() const { return {}; }

    // Of the request that on_request() brings now, if it is resumable. Null: nothing is needed.
    virtual std::shared_ptr<const SessionForm> form() const { return nullptr; }
    // The Resume that on_request() brings now is taken: the answers to this id come next, and
    // `form` is what the session had that began the request.
    virtual void on_resumed(uint64_t /*request_id*/,
                            const std::shared_ptr<const SessionForm>& /*form*/) {}

    // The request that on_request() brings now is being read elsewhere, `bytes` of text of it: the
    // session brings no further one until release_input(), which comes within no call of the
    // session's.
    virtual void hold_input(size_t /*bytes*/) {}
    virtual void release_input() {}

    // Queues one answer; nothing happens on a closed session.
    virtual void send(const client::Response& response) = 0;
    // Writes what the client takes now, so that one batch of tokens is one write. May close.
    virtual void flush() = 0;
    // Queued and not taken by the client; the gateway bounds it (output_limit.h).
    virtual size_t queued_bytes() const = 0;
    // A request has begun that the owner has not heard of: a part of it has come, or the session
    // answers it itself. With it a session is not idle, for as long as it may take; what it has
    // queued must get on (SessionOwner::on_progress()), or it is.
    virtual bool is_within_request() const { return false; }
    // A whole request has come and is read elsewhere: it is answered, whatever else ends, and
    // SessionOwner::on_progress() comes then.
    virtual bool is_reading_request() const { return false; }

    // Ends the session, also what is queued. Calls SessionOwner::on_closed() unless closed already.
    virtual void close() = 0;
    virtual bool is_open() const = 0;

    // What another afdd needs to go on with this connection: the session ends here, as by close().
    // Nothing: it cannot leave now, because it is about to end or in the middle of something; it
    // does not end. REQUIRES: is_leaving() and no request of it is in flight; not within a call of
    // the session's.
    virtual std::optional<HandedConnection> hand_over() = 0;
    // is_leaving() holds no longer: what was kept for another afdd is served here.
    virtual void stay() {}
};

// Whom sessions talk to: the gateway. It owns them once it has adopted them, and outlives them.
class SessionOwner {
  public:
    virtual ~SessionOwner() = default;
    virtual void adopt(std::unique_ptr<ClientSession> session) = 0;
    // One that another afdd has let in and handed over: connections_max does not keep it out, only
    // the limit of open files does. REQUIRES: it has the bytes that came with it.
    virtual void adopt_handed(std::unique_ptr<ClientSession> session) = 0;

    virtual void on_request(ClientSession& client, const client::Request& request) = 0;
    // The session is about to close because of what its client did: for the log.
    virtual void on_refused(ClientSession& client, const std::string& why) = 0;
    // The session is closed, by either side; it is destroyed later, not within this call.
    virtual void on_closed(ClientSession& client) = 0;
    // Some queued bytes have left after they had to wait, or is_reading_request() is over.
    virtual void on_progress(ClientSession& client) = 0;
    // The session has answered a request, be it one of the owner's or its own: it is idle from now
    // on, if at all.
    virtual void on_answered(ClientSession& client) = 0;

    // Another afdd takes the place of this one: what would begin something is kept for it, and
    // hand_over() follows when nothing runs for the session any more.
    virtual bool is_leaving() const = 0;
};

}  // namespace afd::daemon
