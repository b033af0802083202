// SPDX-License-Identifier: Apache-2.0
#pragma once

// KeptStream: what was said of one resumable request, kept so that it can be said again; and the
// stand-in for its client while no connection has it. Who may resume, and for how long, is
// resumable_requests.h.
//
// A place is the number of an answer behind Accepted: Chunks have 0, 1, ..., the end the last one.
// While a connection has the request, only the newest `bytes_max` are kept. While none has it
// nothing is dropped, and what has come since is queued_bytes(): so OutputLimit ends the request of
// a client that stays away as it ends one of a client that does not read.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "daemon/gateway/session/client_session.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class KeptStream final : public ClientSession {
  public:
    // What all streams have together.
    struct Totals {
        size_t bytes = 0;
        bool has_end = false;  // One has come to its end since this was reset.
    };

    // An id that no flight has.
    static constexpr uint64_t kNoFlight = 0;

    // `flight`: its id in the FlightTable.
    KeptStream(uint64_t flight,
               const ClientSession& client,
               client::Accepted accepted,
               size_t bytes_max,
               std::shared_ptr<Totals> totals);
    // One that another afdd has kept, and that is over. `form`: made of that of `stream`.
    KeptStream(const HandedStream& stream,
               std::shared_ptr<const SessionForm> form,
               std::shared_ptr<Totals> totals);
    ~KeptStream() override { totals_->bytes -= bytes_; }

    uint64_t flight() const { return flight_; }
    size_t bytes() const { return bytes_; }
    // A Chunk, Finished or Error is said, whoever hears it. Nothing comes behind the end.
    void keep(const client::Response& response);
    bool is_over() const { return end_.has_value(); }
    bool is_cancelled() const {
        return is_over() && end_->finished().reason() == client::CANCELLED;
    }

    // All that there is of it but its id and grace. REQUIRES: is_over().
    HandedStream handed() const;

    // What a Resume that has `num_received` Chunks is answered first.
    // Errors: kInvalidArgument: more than there are, or the next one is kept no longer.
    Result<client::Accepted> resume(uint64_t num_received) const;
    // The answer in a place; nothing: there is none yet. REQUIRES: it is kept.
    std::optional<client::Response> answer(uint64_t place) const;
    // The answer in this place is on its way to whoever has resumed.
    void pass(uint64_t place);

    // Whether a connection has the request and hears what is said as it is said.
    void attach();
    void detach();

    const ClientIdentity& identity() const override { return identity_; }
    // That of the session that began the request.
    std::shared_ptr<const SessionForm> form() const override { return form_; }
    void send(const client::Response& /*response*/) override {}
    void flush() override {}
    size_t queued_bytes() const override { return unheard_bytes_; }
    void close() override {}
    bool is_open() const override { return true; }
    std::optional<HandedConnection> hand_over() override { return std::nullopt; }

  private:
    struct Kept {
        std::string chunk;  // As it is on the wire: a fraction of the message.
        uint32_t num_tokens = 0;

        size_t bytes() const { return sizeof(Kept) + chunk.size(); }
    };

    void add(std::string chunk, uint32_t num_tokens);
    uint64_t num_chunks() const { return first_ + chunks_.size(); }
    void drop_oldest();

    const uint64_t flight_;
    const ClientIdentity identity_;
    const std::shared_ptr<const SessionForm> form_;
    const client::Accepted accepted_;
    const size_t bytes_max_;
    const std::shared_ptr<Totals> totals_;
    std::deque<Kept> chunks_;
    uint64_t first_ = 0;            // Place of the oldest that is kept,
    uint64_t num_tokens_gone_ = 0;  // and tokens in those before it.
    std::optional<client::Response> end_;
    size_t bytes_ = 0;
    bool is_attached_ = true;
    uint64_t heard_ = 0;  // Places before it do not count as unheard.
    size_t unheard_bytes_ = 0;
};

}  // namespace afd::daemon
