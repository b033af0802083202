// SPDX-License-Identifier: Apache-2.0
//
// What tokens become on their way to a client of HTTP. Input: how the answer is to look, and what a
// worker says: any tokens, hence any bytes, with any log probabilities. It goes through the
// gateway's Request, as in afdd, into the events of a stream or the whole answer. Oracle: valid
// UTF-8, JSON and events, by a parser of another author; an event for each token.

#include <string>

#include "daemon/gateway/request/request.h"
#include "daemon/http/answer/generation_answer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/http_model.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kPromptTokens = 3;

GenerationCall call_of(fuzz::FuzzInput& input) {
    const auto flags = input.take<uint16_t>();
    const auto has = [flags](unsigned bit) { return (flags >> bit & 1U) != 0; };
    GenerationCall call;
    call.is_chat = has(0);
    call.is_stream = has(1);
    call.include_usage = has(2);
    call.continuous_usage = has(3);
    call.has_logprobs = has(4);
    call.top_logprobs = has(5) && has(4) ? 2 : 0;
    call.return_token_ids = has(6);
    if (call.is_chat) {
        call.output.reasoning = static_cast<model::ReasoningSyntax>(flags >> 7 & 3U);
        if (call.output.reasoning == model::ReasoningSyntax::kChannels && has(12)) {
            call.output.reasoning = model::ReasoningSyntax::kFinalChannel;
        }
        call.output.tools = static_cast<model::ToolSyntax>(flags >> 9 & 15U);
        if (call.output.tools > model::kToolSyntaxLast) call.output.tools = {};
        call.output.must_call = has(11);
        call.output.follows_thought = has(12);
        call.output.types = model::ParameterTypes::of(
            {R"({"function":{"name":"f","parameters":{"properties":{"a":{"type":"string"}}}}})"});
    }
    if (has(11) && !call.is_chat) call.echoes = {{.text = "a\xc3\xa9\n"}};
    call.hides_output = has(12) && !call.echoes.empty();
    client::Generate& wish = call.prompts.emplace_back();
    for (uint32_t i = 0; i < kPromptTokens; ++i) wish.mutable_token_ids()->add_ids('a' + i);
    if (has(13)) wish.add_stop("\xc3\xa9\"");
    if (has(13)) wish.add_stop("</");
    wish.set_include_stop_str_in_output(has(14));
    wish.set_keep_special_tokens(has(15));
    wish.set_return_logprobs(call.has_logprobs);
    wish.set_prompt_logprobs(call.has_logprobs && !call.echoes.empty());
    wish.set_top_logprobs(call.top_logprobs);
    wish.set_return_token_ids(call.return_token_ids || call.has_logprobs);
    return call;
}

class Exercise {
  public:
    Exercise(GenerationCall call, const ApiModel& model)
        : answer_(std::move(call), model, {.id = "chatcmpl-1", .model = model.id}) {
        ServedModel served;
        served.vocab_size = kByteVocabulary;
        served.context_length = 512;
        served.stop_ids = {kEndOfText};
        served.tokenizer = model.tokenizer;
        request_ = std::move(Request::create(answer_.take_wish(0), served, 512, 1)).value();
        client::Response response;
        *response.mutable_accepted() = request_->accepted();
        say(response);
    }

    bool is_over() const { return request_->is_complete(); }

    void say_prompt(fuzz::FuzzInput& input) {
        control::PromptLogprobsEvent event;
        event.set_first_position(1);
        for (uint32_t i = 1; i < kPromptTokens; ++i) {
            event.add_values(input.take<float>());
            for (uint32_t k = 0; k < answer_.call().top_logprobs; ++k) {
                event.add_top_ids(input.take<uint8_t>());
                event.add_top_logprobs(input.take<float>());
            }
        }
        auto chunk = request_->on_prompt_logprobs(event);
        AFD_ASSERT(chunk.ok(), "%s", chunk.error().message.c_str());
        if (chunk.value()) say(*std::move(chunk).value());
    }

    void say_token(fuzz::FuzzInput& input) {
        control::TokenEvent event;
        event.set_token(input.take<uint8_t>());
        // The end of the text, now and then.
        if (event.token() == 0) event.set_token(kEndOfText);
        if (answer_.call().has_logprobs) event.set_logprob(input.take<float>());
        for (uint32_t i = 0; i < answer_.call().top_logprobs; ++i) {
            event.add_top_ids(input.take<uint8_t>());
            event.add_top_logprobs(input.take<float>());
        }
        auto chunk = request_->on_token(event);
        AFD_ASSERT(chunk.ok(), "%s", chunk.error().message.c_str());
        if (chunk.value()) say(*std::move(chunk).value());
        ++num_tokens_;
    }

    void end(uint8_t how) {
        client::Response response;
        if (how == 0) {
            response.mutable_error()->set_code(static_cast<uint32_t>(Code::kUnavailable));
            response.mutable_error()->set_message("the worker\n\"is\" gone");
        } else {
            if (auto chunk = request_->on_end()) say(*std::move(chunk));
            response.mutable_finished()->set_reason(request_->finish_reason());
            request_->describe_end(*response.mutable_finished());
        }
        say(response);
        check();
    }

  private:
    void say(client::Chunk chunk) {
        client::Response response;
        *response.mutable_chunk() = std::move(chunk);
        say(response);
    }
    void say(const client::Response& response) { answer_.on_response(0, response, events_); }

    void check() {
        AFD_ASSERT(answer_.is_over(), "it goes on behind its end");
        const GenerationCall& call = answer_.call();
        if (call.is_stream) {
            answer_.append_last_events(events_);
            const size_t num_events = fuzz::must_be_events(events_);
            // A chat leaves out events that say nothing, unless each token has something of its
            // own.
            const bool tells_tokens = !call.is_chat || call.has_logprobs || call.return_token_ids ||
                                      call.continuous_usage;
            const size_t num_shown = call.hides_output || !tells_tokens ? 0 : num_tokens_;
            AFD_ASSERT(num_events >= num_shown, "%zu events of %zu", num_events, num_tokens_);
        } else if (!answer_.error()) {
            const auto body = fuzz::must_be_json(answer_.take_body());
            AFD_ASSERT(body["choices"].size() == 1, "not one choice");
        }
    }

    GenerationAnswer answer_;
    std::unique_ptr<Request> request_;
    std::string events_;
    size_t num_tokens_ = 0;
};

}  // namespace
}  // namespace afd::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const afd::daemon::ApiModel model = afd::fuzz::http_model();
    afd::fuzz::FuzzInput input(data, size);
    afd::daemon::Exercise exercise(afd::daemon::call_of(input), model);
    const auto how = input.take<uint8_t>();
    exercise.say_prompt(input);
    while (!input.is_empty() && !exercise.is_over()) exercise.say_token(input);
    exercise.end(how);
    return 0;
}
