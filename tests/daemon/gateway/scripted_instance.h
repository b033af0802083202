// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is around a Gateway, as a test scripts it: notes what attention workers and program are
// told; the test says what they answer.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/gateway/served_instance.h"
#include "daemon/supervisor/attention_workers.h"

namespace afd::daemon {

class ScriptedInstance final : public AttentionWorkers, public ServedInstance {
  public:
    using Sent = std::pair<uint32_t, control::SupervisorMessage>;  // Session and message.

    void send(uint32_t session, const control::SupervisorMessage& message) override {
        sent.emplace_back(session, message);
    }
    void excuse_deaths() override { ++num_excuses; }
    Result<> answer_context(const client::GetContext& asked, client::Context& answer) override {
        if (asked.role() != "ffn") return Error{Code::kNotFound, "there is no such worker"};
        answer.set_role(asked.role());
        answer.set_index(asked.index());
        return {};
    }
    std::string metrics_text(const client::Status& status,
                             const RequestMetrics& requests,
                             const HopTimes& /*hops*/) const override {
        return "state " + status.state() + ", output " +
               std::to_string(requests.num_output_tokens) + "\n";
    }
    void fill_status(client::Status& status) const override {
        status.set_state(state);
        status.add_workers()->set_role("attention");
    }
    Result<> on_resize_asked(const client::Resize& asked) override {
        if (!resize_refusal.empty()) return Error{Code::kFailedPrecondition, resize_refusal};
        resizes.push_back(asked);
        return {};
    }
    void on_departed() override { has_departed = true; }
    bool has_predecessor() const override { return predecessor; }
    Result<> on_upgrade_asked() override {
        ++num_upgrades;
        return {};
    }
    void on_stop_asked() override { ++num_stops; }
    void on_drained() override { ++num_drains; }

    // The message after those that next() gave; none: an empty one.
    bool has_next() const { return num_seen_ < sent.size(); }
    Sent next() { return has_next() ? sent[num_seen_++] : Sent(); }

    std::vector<Sent> sent;
    std::string state = "starting";
    std::vector<client::Resize> resizes;
    uint32_t num_upgrades = 0;
    bool has_departed = false;
    bool predecessor = false;
    std::string resize_refusal;  // Empty: none is refused.
    int num_stops = 0;
    int num_drains = 0;
    int num_excuses = 0;

  private:
    size_t num_seen_ = 0;
};

// What a worker says of one sequence.
inline control::Events token_event(uint64_t id, uint32_t token) {
    control::Events events;
    events.add_tokens()->set_sequence_id(id);
    events.mutable_tokens(0)->set_token(token);
    return events;
}

inline control::Events started_event(uint64_t id) {
    control::Events events;
    events.add_started()->set_sequence_id(id);
    return events;
}

inline control::Events end_event(uint64_t id, Code code, const std::string& message) {
    control::Events events;
    events.add_ends()->set_sequence_id(id);
    events.mutable_ends(0)->set_code(static_cast<uint32_t>(code));
    events.mutable_ends(0)->set_message(message);
    return events;
}

}  // namespace afd::daemon
