// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpLink: one connection of an HttpDoor: carries one request after the other, and reads what the
// server streams back.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clients/http/event_stream_reader.h"
#include "clients/http/http_response_reader.h"
#include "clients/http/tcp_peer.h"
#include "clients/load/completion_stream.h"
#include "clients/load/door.h"

namespace afd::client {

class HttpLink {
  public:
    // `socket` is being connected; it is closed with the object.
    HttpLink(int socket, const TcpPeer& peer) : socket_(socket), peer_(peer) {}
    ~HttpLink();
    HttpLink(const HttpLink&) = delete;
    HttpLink& operator=(const HttpLink&) = delete;

    // REQUIRES: is_idle().
    void begin(uint64_t request_id, std::string request);

    // Writes and reads what can be; appends what was heard. Once the request has failed or the
    // server closes, is_broken().
    void on_ready(std::vector<DoorEvent>& events);

    int socket() const { return socket_; }
    uint64_t request_id() const { return request_id_; }  // 0: none, or it is over.
    // Another request may be sent.
    bool is_idle() const { return !is_broken() && answer_ == Answer::kNone; }
    bool is_broken() const { return connection_ == State::kBroken; }
    bool wants_to_write() const { return connection_ == State::kConnecting || sent_ < out_.size(); }
    // The request that could not be asked, because the server closed a connection that had been
    // idle; it may be asked again on another.
    std::optional<std::string> take_unasked();

  private:
    enum class State { kConnecting, kOpen, kBroken };
    // None is due; it is awaited; some of it has come. It may be, though the request is over.
    enum class Answer { kNone, kAwaited, kBegun };

    void write(std::vector<DoorEvent>& events);
    void read(std::vector<DoorEvent>& events);
    void take_body(std::vector<DoorEvent>& events);
    void take_events(std::vector<DoorEvent>& events);
    void end_answer(std::vector<DoorEvent>& events);
    void fail(Failure failure, std::vector<DoorEvent>& events);
    void break_with(Failure failure, std::vector<DoorEvent>& events);
    void on_closed(const afd::Error& error, std::vector<DoorEvent>& events);

    const int socket_;
    const TcpPeer& peer_;
    State connection_ = State::kConnecting;
    Answer answer_ = Answer::kNone;
    bool was_used_ = false;  // An answer has been read.
    uint64_t request_id_ = 0;
    std::string out_;
    size_t sent_ = 0;
    HttpResponseReader reader_;
    EventStreamReader event_reader_;
    CompletionStream completion_;
    std::vector<std::string> stream_events_;
    std::string whole_;  // The body of an answer that is no stream.
};

}  // namespace afd::client
