// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpExchange: the completion that a session is answering: one Generate for each choice, one
// behind the other, and the answer that is made of what the gateway says of them. Pure: the bytes,
// the times and the gateway are the session's (http_session.h).
//
// To resume a stream is to make its events anew, all of them, and to leave out those that the
// client has (event_numbers.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/answer/answer_form.h"
#include "daemon/http/answer/event_numbers.h"
#include "daemon/http/answer/generation_answer.h"
#include "daemon/http/call/api_model.h"
#include "daemon/http/message/http_response.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class HttpExchange {
  public:
    // One that begins: `first_id` is the request_id of its first Generate. `model` outlives it.
    static HttpExchange begun(GenerationCall call, const ApiModel& model, uint64_t first_id);
    // One token of the model, whatever it is: it goes through every layer and every worker.
    static HttpExchange probe(const ApiModel& model, uint64_t first_id);
    // A stream that goes on behind the first `num_received` events, as `request_id`.
    static HttpExchange resumed(std::shared_ptr<const AnswerForm> form,
                                uint64_t num_received,
                                const ApiModel& model,
                                uint64_t request_id);

    const GenerationAnswer& answer() const { return *answer_; }
    client::Generate take_wish(size_t choice) { return answer_->take_wish(choice); }
    size_t take_prompt_bytes() { return answer_->take_prompt_bytes(); }
    std::string take_body() { return answer_->take_body(); }
    uint64_t first_id() const { return first_id_; }
    bool has(uint64_t request_id) const {
        return request_id >= first_id_ && request_id - first_id_ < answer_->num_choices();
    }
    bool is_probe() const { return is_probe_; }
    bool is_resumable() const { return numbers_.has_value(); }
    // Whether the head of a resumable answer still waits for the id that it tells. The id comes
    // with Accepted and need not wait for a token; before that there is no head.
    bool waits_for_id() const { return is_resumable() && !has_id_; }
    bool tells_id() const { return has_id_ && !is_resumed_; }
    // What another session needs to go on with it; null: it is not resumable.
    std::shared_ptr<const AnswerForm> form() const { return form_; }

    // A Response to one of its Generates. Appends what it makes of a stream's events.
    // REQUIRES: has(response.request_id()).
    void take(const client::Response& response, std::string& events);

    // The request_ids of Generates that need not go on. A resumable one goes on to its end, since
    // whoever resumes it is told all of it again.
    std::vector<uint64_t> take_cut();

    // A resumed one: all that was said before has been said again just now; what comes is new.
    bool has_caught_up() const { return num_missing_ == 0; }
    // After that, or at its end: whether there are the events that the client says it has.
    bool reaches_client() const { return !numbers_ || !numbers_->is_behind_client(); }
    void go_on() { num_missing_.reset(); }

    // What the client is to read of `events`: of a resumable stream those that it does not
    // have, numbered.
    std::string to_send(std::string_view events);

    // Headers of the answer beside those of every answer.
    std::vector<HttpResponse::Header>& headers() { return headers_; }
    bool has_head() const { return has_head_; }
    // Whether the head of the stream is to be sent now: it was not before.
    bool take_head() { return !std::exchange(has_head_, true); }

  private:
    explicit HttpExchange(uint64_t first_id) : first_id_(first_id) {}

    uint64_t first_id_;
    std::unique_ptr<GenerationAnswer> answer_;
    std::vector<HttpResponse::Header> headers_;
    bool has_head_ = false;
    bool is_probe_ = false;
    // Set for a resumable stream alone.
    std::shared_ptr<const AnswerForm> form_;
    std::optional<EventNumbers> numbers_;
    bool has_id_ = false;
    bool is_resumed_ = false;
    std::optional<uint64_t> num_missing_;  // Answers given before, still to come again.
};

}  // namespace afd::daemon
