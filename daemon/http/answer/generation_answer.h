// SPDX-License-Identifier: Apache-2.0
#pragma once

// GenerationAnswer: what the client of a completion reads, made of what the gateway says of its
// Generates: one JSON object at the end, or server-sent events on the way. Pure: it knows neither
// connection nor clock. The forms are those of the OpenAI API (docs/serving.md).
//
// Of a text every Chunk with a token is one event, also where its text waits for the rest of a
// character, so that who counts events counts tokens. A chat has an event where there is something
// to say: of a token that says nothing yet only if its ids, log probabilities or usage are wanted.
// Its role comes in the same write as its first token. A prompt that is scored is said in parts, as
// its log probabilities come, the first with its text. Texts are whole UTF-8 characters, because
// those of Chunks are. The same Responses are the same events.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/http/answer/answer_form.h"
#include "daemon/http/answer/chat_output.h"
#include "daemon/http/answer/logprobs_text.h"
#include "daemon/http/answer/scored_prompt.h"
#include "daemon/http/call/api_model.h"
#include "daemon/http/call/generation_call.h"
#include "daemon/http/message/api_error.h"
#include "model/tokenizer/stream_decoder.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class GenerationAnswer {
  public:
    // `model` outlives the object.
    GenerationAnswer(GenerationCall call, const ApiModel& model, const AnswerHead& head);

    const GenerationCall& call() const { return call_; }
    // The choices of all prompts: those of the first prompt, then those of the second.
    size_t num_choices() const { return choices_.size(); }
    // What the gateway is asked for a choice. With the last choice of a prompt the prompt is gone:
    // it may be large, and the answer may take long. REQUIRES: one choice after the other, each
    // once.
    client::Generate take_wish(size_t choice);

    // A Response to the Generate of a choice. Of a stream: appends its events. After an error
    // nothing changes any more.
    void on_response(size_t choice, const client::Response& response, std::string& events);

    // Choices that ended since the last call although the gateway goes on with them: what it still
    // makes for them is not said.
    std::vector<size_t> take_cut() { return std::exchange(cut_, {}); }

    // Bytes of events, since the last call, up to and with the first token of a choice: they say
    // the prompt, and are as long as it is.
    size_t take_prompt_bytes() { return std::exchange(num_prompt_bytes_, 0); }

    // Every choice is complete, or there is an error().
    bool is_over() const { return num_open_ == 0 || error_.has_value(); }
    const std::optional<ApiError>& error() const { return error_; }

    // The end of a stream that is over: usage if asked for, or the error, and the end mark.
    void append_last_events(std::string& events) const;
    // The answer to whoever wants no stream, once: what it is made of goes. REQUIRES: it is over,
    // without an error.
    std::string take_body();

  private:
    struct Choice {
        Choice(const ApiModel& model, const GenerationCall& call);

        bool is_cut() const { return chat && chat->is_over(); }

        std::string text;                // Not of a stream or a chat.
        std::optional<ChatOutput> chat;  // Of a chat.
        // Counts the echo and the tokens so far, also those that are not said yet or never will be,
        // such as those behind a stop string.
        uint64_t num_characters = 0;
        std::optional<model::StreamDecoder> decoder;  // Of those tokens, where they are counted.
        LogprobsText logprobs;                        // Of the next event, or of all.
        std::optional<ScoredPrompt> scored;           // Of an echo with log probabilities.
        std::vector<uint32_t> prompt_ids;             // If asked for, until they are said.
        std::vector<uint32_t> token_ids;              // As logprobs.
        uint64_t num_prompt_tokens = 0;
        uint64_t num_cached_tokens = 0;  // Of the prompt; known at the end.
        uint64_t num_output_tokens = 0;
        std::string_view finish_reason;  // Empty: not yet.
        std::string stop_reason;         // JSON; empty: none.
        bool has_echoed = false;         // The text of its prompt was said.
        bool has_begun = false;          // What goes before its first token was said.
    };

    void hear(size_t index, const client::Response& response, std::string& events);
    void fail(ApiError error);
    void on_accepted(size_t index, const client::Accepted& accepted);
    void on_chunk(size_t index, const client::Chunk& chunk, std::string& events);
    void on_finished(size_t index, const client::Finished& finished, std::string& events);
    // What goes before the first token: the role of a chat, the echo of a prompt.
    void begin(size_t index, std::string& events);
    // The text of the prompt, once, and the log probabilities that there are of it.
    void append_echo(size_t index, std::string& events);
    void add_tokens(Choice& choice, const client::Chunk& chunk);
    void append_text(size_t index, std::string_view text, std::string& events);
    // An event of a choice: `said` is its text or delta, with the name.
    void append_event(size_t index, std::string_view said, std::string& events);
    void take_choice(size_t index, std::string& out);
    void append_details(const Choice& choice, std::string& out) const;
    void append_chat_prompt(const Choice& choice, std::string& out) const;
    void append_usage(std::string& out) const;

    GenerationCall call_;
    const ApiModel& model_;
    const std::string head_;  // {"id":...,"choices":[ of every event.
    std::vector<Choice> choices_;
    size_t num_open_ = 0;
    std::vector<size_t> cut_;
    size_t num_prompt_bytes_ = 0;
    std::optional<ApiError> error_;
};

// "data: {"error":...}" and the end mark: a stream that ends for this reason.
void append_error_events(const ApiError& error, std::string& events);

}  // namespace afd::daemon
