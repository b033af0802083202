// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/generation_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/http/message/json_text.h"
#include "model/unicode/utf8.h"
#include "proto/check.h"

namespace afd::daemon {

namespace {

std::string text_of(const AnswerHead& told, const GenerationCall& call) {
    std::string head = R"({"id":)";
    append_json_string(told.id, head);
    head += R"(,"object":")";
    head += !call.is_chat    ? "text_completion"
            : call.is_stream ? "chat.completion.chunk"
                             : "chat.completion";
    head += R"(","created":)";
    append_json_number(static_cast<uint64_t>(told.created), head);
    head += R"(,"model":)";
    append_json_string(told.model, head);
    head += R"(,"system_fingerprint":)";
    append_json_string(told.system_fingerprint, head);
    return head + R"(,"choices":[)";
}

void append_ids(const char* name, const std::vector<uint32_t>& ids, std::string& out) {
    out += name;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) out += ',';
        append_json_number(uint64_t{ids[i]}, out);
    }
    out += ']';
}

// What ended the text, as vLLM says it: a string, an id, or null for the model's own end.
void append_stop_reason(const client::Finished& finished, std::string& out) {
    if (finished.has_matched_stop()) {
        append_json_string(finished.matched_stop(), out);
    } else if (finished.has_matched_stop_token_id()) {
        append_json_number(uint64_t{finished.matched_stop_token_id()}, out);
    }
}

// What the ids of a choice's calls begin with. With the number of the call, they have 24 digits as
// those of others do: clients that keep them in 40 characters, as OpenAI does, have room.
std::string call_id(std::string_view answer_id, size_t choice) {
    static_assert(GenerationCall::kChoicesMax <= 0x100, "two digits for a choice");
    constexpr size_t kDrawn = 16;
    return fmt::format("call_{}{:02x}", answer_id.substr(answer_id.find('-') + 1, kDrawn), choice);
}

std::string_view reason_of(const client::Finished& finished) {
    return finished.reason() == client::LENGTH ? "length" : "stop";
}

// Whether a chat ended where the model had not ended it. A client may name the model's own end
// tokens, too.
bool was_cut(const client::Finished& finished, const ApiModel& model) {
    if (finished.reason() != client::STOP || finished.has_matched_stop()) return true;
    const std::vector<uint32_t>& ends = model.chat_end_ids;
    return finished.has_matched_stop_token_id() &&
           std::ranges::find(ends, finished.matched_stop_token_id()) == ends.end();
}

}  // namespace

GenerationAnswer::Choice::Choice(const ApiModel& model, const GenerationCall& call)
    : logprobs(model, call.is_chat) {
    if (!call.has_logprobs || call.is_chat || model.tokenizer == nullptr) return;
    decoder.emplace(*model.tokenizer, call.keeps_special);
}

GenerationAnswer::GenerationAnswer(GenerationCall call,
                                   const ApiModel& model,
                                   const AnswerHead& head)
    : call_(std::move(call)),
      model_(model),
      head_(text_of(head, call_)),
      num_open_(call_.prompts.size() * call_.num_choices) {
    for (size_t i = 0; i < num_open_; ++i) {
        Choice& choice = choices_.emplace_back(model, call_);
        if (!call_.is_chat) continue;
        choice.chat.emplace(
            call_.output, call_id(head.id, i), call_.is_stream, call_.ends_behind_call);
    }
}

client::Generate GenerationAnswer::take_wish(size_t choice) {
    client::Generate& prompt = call_.prompts[choice / call_.num_choices];
    const size_t place = choice % call_.num_choices;
    const bool is_last = place + 1 == call_.num_choices;
    client::Generate wish = call_.wish(choice / call_.num_choices);
    if (is_last) prompt.Clear();
    wish.mutable_sampling()->set_choice(static_cast<uint32_t>(place));
    wish.set_resumable_ms(call_.resumable_ms);
    return wish;
}

void GenerationAnswer::on_response(size_t choice,
                                   const client::Response& response,
                                   std::string& events) {
    AFD_ASSERT(choice < choices_.size(), "choice %zu of %zu", choice, choices_.size());
    if (is_over()) return;
    const bool has_begun = choices_[choice].has_begun;
    const size_t num_before = events.size();
    hear(choice, response, events);
    if (!has_begun) num_prompt_bytes_ += events.size() - num_before;
}

void GenerationAnswer::hear(size_t index, const client::Response& response, std::string& events) {
    switch (response.body_case()) {
        case client::Response::kAccepted:
            on_accepted(index, response.accepted());
            return;
        case client::Response::kChunk:
            on_chunk(index, response.chunk(), events);
            return;
        case client::Response::kFinished:
            on_finished(index, response.finished(), events);
            return;
        case client::Response::kError:
            fail(api_error(response.error()));
            return;
        case client::Response::kStatus:
        case client::Response::kDone:
        case client::Response::kTraceEvents:
        case client::Response::kContext:
        case client::Response::kMetrics:
        case client::Response::kTokens:
        case client::Response::kText:
        case client::Response::kProgress:
        case client::Response::kResized:
        case client::Response::kUpgraded:
        case client::Response::BODY_NOT_SET:
            return;
    }
}

void GenerationAnswer::fail(ApiError error) {
    error_ = std::move(error);
    if (!call_.hides_output || error_->code != "context_length_exceeded") return;
    // Who scores a prompt has not asked for the token that is made behind it.
    constexpr std::string_view kAsked = " and max_tokens is 1: together";
    error_->param = "prompt";
    const size_t at = error_->message.find(kAsked);
    if (at == std::string::npos) return;
    error_->message.replace(at, kAsked.size(), ", and to score it takes one more:");
}

void GenerationAnswer::on_accepted(size_t index, const client::Accepted& accepted) {
    Choice& choice = choices_[index];
    choice.num_prompt_tokens = accepted.num_prompt_tokens();
    std::vector<uint32_t> ids(accepted.prompt_ids().begin(), accepted.prompt_ids().end());
    if (choice.decoder) choice.decoder->follow(ids);
    if (call_.return_token_ids) choice.prompt_ids = ids;
    if (call_.echoes.empty() || !call_.has_logprobs) return;
    choice.scored.emplace(std::move(ids), call_.echoes[index / call_.num_choices], model_);
}

void GenerationAnswer::on_chunk(size_t index, const client::Chunk& chunk, std::string& events) {
    Choice& choice = choices_[index];
    if (choice.is_cut()) return;
    // At once, since those of a whole prompt would keep everybody else waiting.
    if (choice.scored && !chunk.prompt_logprobs().empty()) {
        choice.scored->add(chunk, choice.logprobs);
        append_echo(index, events);
    }
    if (chunk.num_tokens() == 0 && chunk.text().empty()) return;
    begin(index, events);
    if (call_.hides_output) return;
    add_tokens(choice, chunk);
    append_text(index, chunk.text(), events);
    if (choice.is_cut()) cut_.push_back(index);
}

void GenerationAnswer::add_tokens(Choice& choice, const client::Chunk& chunk) {
    choice.num_output_tokens += chunk.num_tokens();
    for (int i = 0; call_.has_logprobs && i < chunk.logprobs_size(); ++i) {
        std::vector<LogprobsText::Alternative> top;
        if (i < chunk.top_logprobs_size())
            top = LogprobsText::alternatives_of(chunk.top_logprobs(i));
        const uint32_t id = chunk.token_ids(i);
        choice.logprobs.add(id, chunk.logprobs(i), choice.num_characters, top);
        if (choice.decoder)
            choice.num_characters += model::num_characters(choice.decoder->append(id));
    }
    const auto& ids = chunk.token_ids();
    if (call_.return_token_ids) {
        choice.token_ids.insert(choice.token_ids.end(), ids.begin(), ids.end());
    }
}

void GenerationAnswer::append_text(size_t index, std::string_view text, std::string& events) {
    Choice& choice = choices_[index];
    if (!call_.is_chat) {
        if (call_.is_stream) {
            std::string said = R"(,"text":)";
            append_json_string(text, said);
            append_event(index, said, events);
        } else {
            choice.text += text;
        }
        return;
    }
    std::vector<std::string> deltas = choice.chat->append(text);
    if (!call_.is_stream) return;
    // What is told of each token has an event, also where what it says waits to be told apart.
    const bool tells_tokens =
        call_.has_logprobs || call_.return_token_ids || call_.continuous_usage;
    if (deltas.empty() && tells_tokens) deltas.emplace_back(R"({"content":""})");
    for (const std::string& delta : deltas) append_event(index, R"(,"delta":)" + delta, events);
}

void GenerationAnswer::on_finished(size_t index,
                                   const client::Finished& finished,
                                   std::string& events) {
    begin(index, events);
    Choice& choice = choices_[index];
    if (choice.chat) {
        for (const std::string& delta : choice.chat->finish(was_cut(finished, model_))) {
            append_event(index, R"(,"delta":)" + delta, events);
        }
    }
    choice.finish_reason = call_.hides_output ? "length"
                           : choice.is_cut()  ? "stop"
                                              : reason_of(finished);
    // What was cut off, a call or what comes behind it, keeps the reason for that.
    if (choice.chat && (choice.finish_reason == "stop" ? choice.chat->has_called()
                                                       : choice.chat->ends_with_call())) {
        choice.finish_reason = "tool_calls";
    }
    if (!choice.is_cut()) append_stop_reason(finished, choice.stop_reason);
    choice.num_cached_tokens = finished.num_cached_tokens();
    --num_open_;
    if (call_.is_stream) {
        append_event(index, call_.is_chat ? R"(,"delta":{})" : R"(,"text":"")", events);
    }
}

void GenerationAnswer::begin(size_t index, std::string& events) {
    Choice& choice = choices_[index];
    if (std::exchange(choice.has_begun, true)) return;
    if (call_.is_chat && call_.is_stream) {
        append_event(index, R"(,"delta":{"role":"assistant","content":""})", events);
    }
    if (call_.echoes.empty()) return;
    const std::string& echo = call_.echoes[index / call_.num_choices].text;
    choice.num_characters = model::num_characters(echo);
    const bool is_said = choice.has_echoed && !(choice.scored && choice.scored->has_rest());
    if (choice.scored) choice.scored->add_rest(choice.logprobs);
    if (!is_said) append_echo(index, events);
    choice.scored.reset();
}

void GenerationAnswer::append_echo(size_t index, std::string& events) {
    const bool has_echoed = std::exchange(choices_[index].has_echoed, true);
    const std::string& echo = call_.echoes[index / call_.num_choices].text;
    append_text(index, has_echoed ? std::string_view() : echo, events);
}

void GenerationAnswer::append_event(size_t index, std::string_view said, std::string& events) {
    Choice& choice = choices_[index];
    events += "data: ";
    events += head_;
    events += R"({"index":)";
    append_json_number(uint64_t{index}, events);
    events += said;
    append_details(choice, events);
    events += "}]";
    append_chat_prompt(choice, events);
    choice.logprobs.clear();
    choice.token_ids.clear();
    choice.prompt_ids.clear();
    if (call_.continuous_usage) {
        append_usage(events);
    } else if (call_.include_usage) {
        events += R"(,"usage":null)";
    }
    events += "}\n\n";
}

void GenerationAnswer::append_details(const Choice& choice, std::string& out) const {
    out += R"(,"logprobs":)";
    if (choice.logprobs.empty()) {
        out += "null";
    } else {
        choice.logprobs.append(out);
    }
    out += R"(,"finish_reason":)";
    append_json_string_or_null(choice.finish_reason, out);
    if (!choice.stop_reason.empty()) out += R"(,"stop_reason":)" + choice.stop_reason;
    if (!call_.return_token_ids) return;
    if (!choice.prompt_ids.empty() && !call_.is_chat)
        append_ids(R"(,"prompt_token_ids":[)", choice.prompt_ids, out);
    append_ids(R"(,"token_ids":[)", choice.token_ids, out);
}

// A chat has one prompt; its ids stand beside the choices.
void GenerationAnswer::append_chat_prompt(const Choice& choice, std::string& out) const {
    if (!call_.is_chat || !call_.return_token_ids || choice.prompt_ids.empty()) return;
    append_ids(R"(,"prompt_token_ids":[)", choice.prompt_ids, out);
}

void GenerationAnswer::append_usage(std::string& out) const {
    uint64_t num_prompt = 0;
    uint64_t num_cached = 0;
    uint64_t num_output = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
        // A prompt counts once for all its choices: what the first of them found of it.
        if (i % call_.num_choices == 0) {
            num_prompt += choices_[i].num_prompt_tokens;
            num_cached += choices_[i].num_cached_tokens;
        }
        num_output += choices_[i].num_output_tokens;
    }
    out += R"(,"usage":{"prompt_tokens":)";
    append_json_number(num_prompt, out);
    out += R"(,"completion_tokens":)";
    append_json_number(num_output, out);
    out += R"(,"total_tokens":)";
    append_json_number(num_prompt + num_output, out);
    out += R"(,"prompt_tokens_details":{"cached_tokens":)";
    append_json_number(num_cached, out);
    out += "}}";
}

void GenerationAnswer::append_last_events(std::string& events) const {
    if (error_) {
        append_error_events(*error_, events);
        return;
    }
    if (call_.include_usage) {
        events += "data: " + head_ + ']';
        append_usage(events);
        events += "}\n\n";
    }
    events += "data: [DONE]\n\n";
}

void GenerationAnswer::take_choice(size_t index, std::string& out) {
    Choice& choice = choices_[index];
    out += index == 0 ? R"({"index":)" : R"(,{"index":)";
    append_json_number(uint64_t{index}, out);
    if (choice.chat) {
        out += R"(,"message":)" + choice.chat->message();
    } else {
        out += R"(,"text":)";
        append_json_string(choice.text, out);
    }
    append_details(choice, out);
    out += '}';
    // Both may be long, and there may be many choices.
    choice.text = {};
    choice.logprobs.give_memory_back();
}

std::string GenerationAnswer::take_body() {
    AFD_ASSERT(num_open_ == 0 && !error_, "%zu choices are open", num_open_);
    std::string body = head_;
    for (size_t i = 0; i < choices_.size(); ++i) take_choice(i, body);
    body += ']';
    append_chat_prompt(choices_.front(), body);
    append_usage(body);
    body += '}';
    // It may be long: then it is the memory that is sent (append_response).
    constexpr size_t kHeadBytes = 1024;
    body.reserve(body.size() + kHeadBytes);
    return body;
}

void append_error_events(const ApiError& error, std::string& events) {
    events += "data: " + error_json(error) + "\n\ndata: [DONE]\n\n";
}

}  // namespace afd::daemon
