// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/event_batch.h"

#include <cstring>

namespace afd::daemon {

namespace {

// A text of fixed size may be full without a zero byte if its writer did not use set_text().
std::string text_of(const WorkerEvent& event) {
    return {event.text, ::strnlen(event.text, sizeof(event.text))};
}

void add_wait(const WorkerEvent& event, control::WaitReport& report) {
    const std::string text = text_of(event);
    if (event.peer_at < 2 || event.peer_at > text.size()) {
        report.set_text(text);
        return;
    }
    report.set_text(text.substr(0, event.peer_at - 2u));
    report.set_rank(event.token);
    report.set_peer(text.substr(event.peer_at));
}

void add_value(const WorkerEvent& event, control::PromptLogprobsEvent& run) {
    run.add_values(event.logprob);
    for (uint8_t i = 0; i < event.num_top; ++i) {
        run.add_top_ids(event.top(i).id);
        run.add_top_logprobs(event.top(i).logprob);
    }
}

void add_prompt_logprob(const WorkerEvent& event, control::Events& events) {
    auto& runs = *events.mutable_prompt_logprobs();
    if (!runs.empty()) {
        control::PromptLogprobsEvent& last = runs[runs.size() - 1];
        const auto next = last.first_position() + static_cast<uint32_t>(last.values_size());
        // Positions that follow each other become one run. A prompt's log probabilities are one
        // event a row.
        if (last.sequence_id() == event.sequence_id && next == event.token) {
            add_value(event, last);
            return;
        }
    }
    control::PromptLogprobsEvent& run = *runs.Add();
    run.set_sequence_id(event.sequence_id);
    run.set_first_position(event.token);
    add_value(event, run);
}

}  // namespace

bool EventBatch::add_other(const WorkerEvent& event) {
    if (event.kind == WorkerEvent::Kind::kWait) {
        add_wait(event, *others_.emplace_back().mutable_wait());
    } else if (event.kind == WorkerEvent::Kind::kSegmentRequest) {
        control::SegmentRequest& request = *others_.emplace_back().mutable_segment_request();
        request.set_session(event.segment.session);
        request.set_round(event.segment.round);
        request.set_receive_bytes(event.segment.receive_bytes);
        request.set_return_bytes(event.segment.return_bytes);
    } else if (event.kind == WorkerEvent::Kind::kSegmentRelease) {
        control::SegmentRelease& release = *others_.emplace_back().mutable_segment_release();
        release.set_session(event.segment.session);
        release.set_round(event.segment.round);
    } else if (event.kind == WorkerEvent::Kind::kVoidRequest) {
        control::VoidRequest& request = *others_.emplace_back().mutable_void_request();
        request.set_rank(event.voidable.rank);
        request.set_micro_batch(event.voidable.micro_batch);
        request.set_round(event.voidable.round);
    } else {
        return false;
    }
    return true;
}

void EventBatch::add(const WorkerEvent& event) {
    if (add_other(event)) return;
    ++num_events_;
    control::Events& events = *message_.mutable_events();
    switch (event.kind) {
        case WorkerEvent::Kind::kStarted:
            events.add_started()->set_sequence_id(event.sequence_id);
            events.mutable_started()->rbegin()->set_num_cached_tokens(event.token);
            break;
        case WorkerEvent::Kind::kPromptLogprob:
            add_prompt_logprob(event, events);
            break;
        case WorkerEvent::Kind::kToken: {
            control::TokenEvent& token = *events.add_tokens();
            token.set_sequence_id(event.sequence_id);
            token.set_token(event.token);
            token.set_logprob(event.logprob);
            for (uint8_t i = 0; i < event.num_top; ++i) {
                token.add_top_ids(event.top(i).id);
                token.add_top_logprobs(event.top(i).logprob);
            }
            break;
        }
        case WorkerEvent::Kind::kEnd: {
            control::EndEvent& end = *events.add_ends();
            end.set_sequence_id(event.sequence_id);
            end.set_code(static_cast<uint32_t>(event.code));
            end.set_message(text_of(event));
            end.set_gave_way(event.gave_way);
            break;
        }
        case WorkerEvent::Kind::kWait:
        case WorkerEvent::Kind::kSegmentRequest:
        case WorkerEvent::Kind::kSegmentRelease:
        case WorkerEvent::Kind::kVoidRequest:
            break;
    }
}

void EventBatch::queue_on(ControlChannel& channel) {
    if (num_events_ > 0) channel.queue(message_);
    for (const control::WorkerMessage& other : others_) channel.queue(other);
    message_.Clear();
    others_.clear();
    num_events_ = 0;
}

}  // namespace afd::daemon
