// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/call/generation_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/http/call/chat_reader.h"
#include "daemon/http/call/field_reader.h"
#include "daemon/http/call/prompt_reader.h"
#include "daemon/http/call/response_format_reader.h"
#include "daemon/http/call/tool_choice_reader.h"
#include "model/sampling/sampler.h"
#include "proto/typed_number.h"

namespace afd::daemon {

namespace {

constexpr int64_t kTokensMax = INT32_MAX;
constexpr int64_t kCompletionTokens = 16;  // What OpenAI makes of a completion without max_tokens.

// What a field that is not served may be: it asks for nothing then.
bool is_neutral(std::string_view name, const nlohmann::json& value) {
    if (value == false || value == "" || value == nlohmann::json::array()) return true;
    const bool is_off_at_one =
        name == "best_of" || name == "length_penalty" || name == "typical_p" || name == "tfs_z";
    return is_off_at_one && value == 1.0;
}

// Fields that some server has and this one has not.
void refuse_unsupported(FieldReader& fields) {
    for (const char* name : {"suffix",
                             "allowed_token_ids",
                             "bad_words",
                             "continue_final_message",
                             "best_of",
                             "use_beam_search",
                             "length_penalty",
                             "typical_p",
                             "tfs_z",
                             "guided_json",
                             "guided_regex",
                             "guided_choice",
                             "guided_grammar",
                             "grammar",
                             "json_schema",
                             "format",
                             "structured_outputs",
                             "functions",
                             "function_call",
                             "audio",
                             "prediction",
                             "web_search_options",
                             "prompt_logprobs",
                             "truncate_prompt_tokens"}) {
        const nlohmann::json* value = fields.any(name);
        if (value == nullptr || is_neutral(name, *value)) continue;
        fields.fail(unsupported_field(name, fmt::format("{} is not supported", name)));
    }
}

void read_model(FieldReader& fields, const ApiModel& model) {
    const auto name = fields.text("model");
    if (name && !model.is_called(*name)) fields.fail(no_such_model(*name, model));
}

// {"50256": -100}: the id is a string, because it is a key.
void read_logit_bias(FieldReader& fields, SamplingSettings& sampling) {
    const nlohmann::json* biases = fields.any("logit_bias");
    if (biases == nullptr) return;
    if (!biases->is_object()) {
        fields.fail(bad_field("logit_bias", "logit_bias must be an object of token ids"));
        return;
    }
    for (const auto& [name, bias] : biases->items()) {
        const auto token = whole_number(name);
        if (!token || *token > UINT32_MAX || !bias.is_number()) {
            fields.fail(bad_field("logit_bias",
                                  "logit_bias must have token ids for its keys, as strings, and "
                                  "numbers for its values"));
            return;
        }
        LogitBias& added = *sampling.add_logit_bias();
        added.set_token_id(static_cast<uint32_t>(*token));
        added.set_bias(bias.get<float>());
    }
}

std::optional<float> read_top_p(FieldReader& fields) {
    const auto top_p = fields.number("top_p");
    if (!top_p) return std::nullopt;
    // 0 is how SamplingSettings says that it is off, which no client means by it, nor by what a
    // float has no other number for.
    if (*top_p <= 0 || *top_p > 1) {
        fields.fail(bad_field(
            "top_p",
            fmt::format("top_p = {}: must be above 0, up to 1; 1 keeps every token", *top_p)));
    }
    const auto read = static_cast<float>(*top_p);
    return read == 0 ? std::numeric_limits<float>::min() : read;
}

void read_sampling(FieldReader& fields, const ApiModel& model, SamplingSettings& sampling) {
    const model::GenerationConfig& author = model.defaults;
    sampling.set_temperature(static_cast<float>(
        fields.number("temperature").value_or(author.temperature.value_or(1.0F))));
    sampling.set_top_p(read_top_p(fields).value_or(author.top_p.value_or(0.0F)));
    const int64_t top_k =
        fields.integer("top_k", -1, kTokensMax).value_or(author.top_k.value_or(0));
    sampling.set_top_k(static_cast<uint32_t>(std::max<int64_t>(top_k, 0)));
    sampling.set_min_p(
        static_cast<float>(fields.number("min_p").value_or(author.min_p.value_or(0.0F))));
    if (const auto seed = fields.bits("seed")) sampling.set_seed(*seed);
    // Before it is a float: one that is next to nothing would be 0, which is off.
    const auto repetition = fields.number("repetition_penalty");
    if (repetition && (*repetition < 0.01 || *repetition > 100)) {
        fields.fail(bad_field(
            "repetition_penalty",
            fmt::format("repetition_penalty = {}: must be 0.01 to 100; 1 is off", *repetition)));
    }
    const double penalty = repetition.value_or(author.repetition_penalty.value_or(1.0F));
    if (penalty != 1) sampling.set_repetition_penalty(static_cast<float>(penalty));
    sampling.set_presence_penalty(static_cast<float>(
        fields.number("presence_penalty").value_or(author.presence_penalty.value_or(0.0F))));
    sampling.set_frequency_penalty(static_cast<float>(
        fields.number("frequency_penalty").value_or(author.frequency_penalty.value_or(0.0F))));
    read_logit_bias(fields, sampling);
}

// Where the text ends.
void read_end(FieldReader& fields, client::Generate& wish) {
    if (const nlohmann::json* stop = fields.any("stop")) {
        const bool is_one = stop->is_string();
        if (!is_one && !stop->is_array()) {
            fields.fail(bad_field("stop", "stop must be a string or an array of strings"));
            return;
        }
        for (size_t i = 0; i < (is_one ? 1 : stop->size()); ++i) {
            const nlohmann::json& text = is_one ? *stop : (*stop)[i];
            if (text.is_string()) {
                wish.add_stop(text.get_ref<const std::string&>());
                continue;
            }
            fields.fail(bad_field(
                "stop", fmt::format("stop[{}] is {}; it must be a string", i, type_of(text))));
            return;
        }
    }
    if (const nlohmann::json* ids = fields.any("stop_token_ids")) {
        ApiResult<client::TokenIds> read = read_token_ids(*ids, "stop_token_ids");
        if (auto* error = std::get_if<ApiError>(&read)) {
            fields.fail(std::move(*error));
            return;
        }
        wish.mutable_stop_token_ids()->CopyFrom(std::get<client::TokenIds>(read).ids());
    }
    wish.set_include_stop_str_in_output(
        fields.boolean("include_stop_str_in_output").value_or(false));
    wish.set_min_tokens(
        static_cast<uint32_t>(fields.integer("min_tokens", 0, kTokensMax).value_or(0)));
    wish.set_ignore_eos(fields.boolean("ignore_eos").value_or(false));
    wish.set_timeout_ms(
        static_cast<uint32_t>(fields.integer("timeout_ms", 0, UINT32_MAX).value_or(0)));
    wish.set_keep_special_tokens(!fields.boolean("skip_special_tokens").value_or(true));
}

// How the answer is to look.
void read_form(FieldReader& fields, GenerationCall& call) {
    call.num_choices = static_cast<uint32_t>(fields.integer("n", 1, 16).value_or(1));
    call.is_stream = fields.boolean("stream").value_or(false);
    call.return_token_ids = fields.boolean("return_token_ids").value_or(false);
    call.resumable_ms =
        static_cast<uint32_t>(fields.integer("resumable_ms", 0, UINT32_MAX).value_or(0));
    if (const nlohmann::json* options = fields.any("stream_options")) {
        FieldReader inner(*options, "stream_options.");
        call.include_usage = inner.boolean("include_usage").value_or(false);
        call.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
        if (inner.error()) fields.fail(*inner.error());
        if (!call.is_stream) {
            fields.fail(bad_field("stream_options", "stream_options is for streams: set stream"));
        }
        fields.add_unknown(inner);
    }
    if (!fields.boolean("spaces_between_special_tokens").value_or(true)) {
        fields.fail(unsupported_field("spaces_between_special_tokens",
                                      "spaces_between_special_tokens = false is not supported"));
    }
    // Labels of the client's.
    for (const char* name : {"user", "metadata", "store"}) fields.ignore(name);
    // No request comes before another: what asks for that is told so.
    const nlohmann::json* tier = fields.any("service_tier");
    if (tier != nullptr && *tier != "auto" && *tier != "default") {
        call.ignored.emplace_back("service_tier");
    }
    const nlohmann::json* priority = fields.any("priority");
    if (priority != nullptr && *priority != 0) call.ignored.emplace_back("priority");
}

void finish(FieldReader& fields, GenerationCall& call) {
    for (std::string& name : fields.unknown()) call.ignored.push_back(std::move(name));
    const uint64_t total = uint64_t{call.num_choices} * call.prompts.size();
    if (total > GenerationCall::kChoicesMax) {
        fields.fail(bad_field(
            call.num_choices > 1 ? "n" : "prompt",
            fmt::format("{} choices of {} prompts are asked for; at most {} together are served",
                        call.num_choices,
                        call.prompts.size(),
                        GenerationCall::kChoicesMax)));
    }
    // Who waits for a whole answer has no id to resume with; choices come in any order.
    if (call.resumable_ms > 0 && (!call.is_stream || total > 1 || call.has_echo)) {
        fields.fail(bad_field("resumable_ms",
                              "resumable_ms is for streams of one choice: set stream, and neither "
                              "n, several prompts nor echo"));
    }
}

void read_completion_form(FieldReader& fields, GenerationCall& call, client::Generate& base) {
    const auto logprobs = fields.integer("logprobs", 0, model::kTopLogprobsMax);
    call.has_logprobs = logprobs.has_value();
    call.top_logprobs = static_cast<uint32_t>(logprobs.value_or(0));
    base.set_top_logprobs(call.top_logprobs);
    const bool echo = fields.boolean("echo").value_or(false);
    const int64_t max_tokens =
        fields.integer("max_tokens", echo ? 0 : 1, kTokensMax).value_or(kCompletionTokens);
    call.hides_output = max_tokens == 0;
    base.set_max_tokens(static_cast<uint32_t>(std::max<int64_t>(max_tokens, 1)));
    base.set_return_logprobs(call.has_logprobs);
    base.set_prompt_logprobs(call.has_logprobs && echo);
    // A log probability stands beside the text of its token.
    base.set_return_token_ids(call.return_token_ids || call.has_logprobs);
    call.has_echo = echo;
    call.keeps_special = base.keep_special_tokens();
}

void read_chat_form(FieldReader& fields, GenerationCall& call, client::Generate& base) {
    call.has_logprobs = fields.boolean("logprobs").value_or(false);
    const auto top = fields.integer("top_logprobs", 0, model::kTopLogprobsMax);
    if (top.value_or(0) > 0 && !call.has_logprobs) {
        fields.fail(bad_field("top_logprobs", "top_logprobs needs logprobs = true"));
    }
    call.top_logprobs = static_cast<uint32_t>(top.value_or(0));
    base.set_top_logprobs(call.top_logprobs);
    base.set_return_logprobs(call.has_logprobs);
    base.set_return_token_ids(call.return_token_ids || call.has_logprobs);
    base.set_begins_text(true);
    // The newer name wins; without either the answer may take the rest of the context.
    const auto max_tokens = fields.integer("max_tokens", 1, kTokensMax);
    const auto completion = fields.integer("max_completion_tokens", 1, kTokensMax);
    base.set_max_tokens(static_cast<uint32_t>(completion ? *completion : max_tokens.value_or(0)));
    if (fields.boolean("echo").value_or(false)) {
        fields.fail(unsupported_field("echo", "echo is not supported in a chat"));
    }
    if (fields.boolean("add_special_tokens").value_or(false)) {
        fields.fail(unsupported_field("add_special_tokens",
                                      "add_special_tokens = true is not supported in a chat: the "
                                      "template has those that the model expects"));
    }
    if (const nlohmann::json* modalities = fields.any("modalities")) {
        if (*modalities != nlohmann::json::array({"text"})) {
            fields.fail(unsupported_field("modalities", "modalities: only text is served"));
        }
    }
}

GenerationCall::Echo echo_of(const client::Generate& prompt,
                             bool adds_special,
                             bool keeps_special,
                             const ApiModel& model) {
    // A text is said as it was sent.
    const bool is_literal = prompt.has_text();
    GenerationCall::Echo echo{.text = text_of_prompt(prompt, keeps_special, model),
                              .keeps_special = keeps_special || is_literal};
    if (adds_special && is_literal && model.tokenizer != nullptr) {
        echo.num_added_before = model.tokenizer->prompt_start().size();
        echo.num_added_behind = model.tokenizer->prompt_end().size();
    }
    return echo;
}

// Ids instead of a text: the gateway would read it again for each choice. Without a tokenizer it is
// refused there.
std::optional<ApiError> encode_text(client::Generate& prompt,
                                    bool adds_special,
                                    const ApiModel& model) {
    if (!prompt.has_text() || model.tokenizer == nullptr) return std::nullopt;
    ApiResult<std::vector<uint32_t>> ids = encode_prompt(prompt.text(), adds_special, model);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    const auto& read = std::get<std::vector<uint32_t>>(ids);
    prompt.mutable_token_ids()->mutable_ids()->Assign(read.begin(), read.end());
    return std::nullopt;
}

// Each choice says its prompt. REQUIRES: prompts are ids, where they can be.
std::optional<ApiError> judge_echo(const GenerationCall& call) {
    if (!call.has_echo || !call.has_logprobs) return std::nullopt;
    uint64_t num_tokens = 0;
    for (const client::Generate& prompt : call.prompts) {
        num_tokens += static_cast<uint64_t>(prompt.token_ids().ids_size());
    }
    const uint64_t num_each = uint64_t{1} + call.top_logprobs;
    const uint64_t total = num_tokens * call.num_choices * num_each;
    if (total <= GenerationCall::kEchoedLogprobsMax) return std::nullopt;
    return bad_field(
        "echo",
        fmt::format("echo with logprobs asks for {} log probabilities: {} tokens of prompts, n = "
                    "{} times, with 1 + {} each; at most {} are served; send fewer prompts, or a "
                    "smaller n or logprobs",
                    total,
                    num_tokens,
                    call.num_choices,
                    call.top_logprobs,
                    GenerationCall::kEchoedLogprobsMax));
}

// How the answer is read, and where it ends.
void read_output(const ApiModel& model,
                 bool may_think,
                 const GenerationCall& call,
                 client::Generate& base) {
    // Marks of calls, channels and ends may be special tokens.
    const model::ReasoningSyntax reasoning = call.output.reasoning;
    if (call.output.tools != model::ToolSyntax::kNone ||
        reasoning == model::ReasoningSyntax::kChannels ||
        reasoning == model::ReasoningSyntax::kFinalChannel) {
        base.set_keep_special_tokens(true);
    }
    if (base.sampling().has_response_format()) {
        ResponseFormat& format = *base.mutable_sampling()->mutable_response_format();
        format.set_thinks_first(reasoning == model::ReasoningSyntax::kStarted);
        format.set_may_think(reasoning == model::ReasoningSyntax::kTagged && may_think);
        format.set_in_final_channel(reasoning == model::ReasoningSyntax::kFinalChannel);
    }
    base.mutable_end_token_ids()->Assign(model.chat_end_ids.begin(), model.chat_end_ids.end());
}

}  // namespace

ApiResult<GenerationCall> read_chat(std::string_view body, const ApiModel& model) {
    ApiResult<nlohmann::json> json = parse_body(body);
    if (auto* error = std::get_if<ApiError>(&json)) return std::move(*error);
    FieldReader fields(std::get<nlohmann::json>(json));
    GenerationCall call;
    call.is_chat = true;
    client::Generate& wish = call.prompts.emplace_back();
    read_model(fields, model);
    read_sampling(fields, model, *wish.mutable_sampling());
    read_response_format(fields, body, *wish.mutable_sampling(), call.ignored);
    read_end(fields, wish);
    read_form(fields, call);
    read_chat_form(fields, call, wish);
    refuse_unsupported(fields);
    const model::Conversation conversation = read_conversation(fields, body);
    const ToolChoice choice = read_tool_choice(fields);
    // A call that is forced is one.
    const bool is_auto = choice.kind == ToolChoice::Kind::kAuto;
    call.ends_behind_call = !fields.boolean("parallel_tool_calls").value_or(true) && is_auto;
    if (wish.sampling().has_response_format() && !conversation.tools.empty()) {
        fields.fail(unsupported_field("response_format",
                                      "response_format beside tools is not supported: an answer "
                                      "of this format calls none; set tool_choice to none"));
    }
    finish(fields, call);
    if (fields.error()) return *fields.error();
    ApiResult<client::TokenIds> prompt = render_prompt(conversation, model);
    if (auto* error = std::get_if<ApiError>(&prompt)) return std::move(*error);
    *wish.mutable_token_ids() = std::move(std::get<client::TokenIds>(prompt));
    call.output = model.chat->output(conversation);
    if (!conversation.effort.empty() && !model.chat->takes_effort()) {
        call.ignored.emplace_back("reasoning_effort");
    }
    if (wish.sampling().has_response_format() &&
        call.output.reasoning == model::ReasoningSyntax::kChannels) {
        if (!conversation.add_generation_prompt) {
            return unsupported_field("add_generation_prompt",
                                     "add_generation_prompt = false is not supported with a "
                                     "response_format for this model: its answer begins within a "
                                     "message; leave add_generation_prompt out");
        }
        call.output.reasoning = model::ReasoningSyntax::kFinalChannel;
    }
    if (choice.kind == ToolChoice::Kind::kRequired) {
        auto error = force_call(
            choice, body, *model.chat, call.output.tools, *wish.mutable_sampling(), call.ignored);
        if (error) return std::move(*error);
        call.output.must_call = true;
    } else if (is_auto) {
        note_strict_tools(fields, call.ignored);
    }
    read_output(model, conversation.thinking.value_or(true), call, wish);
    // A forced call was judged when it was made.
    if (!call.output.must_call) {
        if (auto error = judge_response_format(wish.sampling())) return *std::move(error);
    }
    return call;
}

ApiResult<GenerationCall> read_completion(std::string_view body, const ApiModel& model) {
    ApiResult<nlohmann::json> json = parse_body(body);
    if (auto* error = std::get_if<ApiError>(&json)) return std::move(*error);
    FieldReader fields(std::get<nlohmann::json>(json));
    GenerationCall call;
    client::Generate& base = call.common;
    read_model(fields, model);
    read_sampling(fields, model, *base.mutable_sampling());
    read_response_format(fields, body, *base.mutable_sampling(), call.ignored);
    read_end(fields, base);
    read_form(fields, call);
    read_completion_form(fields, call, base);
    refuse_unsupported(fields);
    if (const nlohmann::json* prompt = fields.any("prompt")) {
        ApiResult<std::vector<client::Generate>> prompts =
            read_prompts(*prompt, GenerationCall::kChoicesMax);
        if (auto* error = std::get_if<ApiError>(&prompts)) return std::move(*error);
        call.prompts = std::move(std::get<std::vector<client::Generate>>(prompts));
    } else {
        fields.fail(bad_field("prompt", "prompt is missing: a string or an array of token ids"));
    }
    const bool adds_special = fields.boolean("add_special_tokens").value_or(true);
    finish(fields, call);
    if (fields.error()) return *fields.error();
    if (auto error = judge_response_format(base.sampling())) return *std::move(error);
    for (client::Generate& prompt : call.prompts) {
        if (call.has_echo) {
            call.echoes.push_back(echo_of(prompt, adds_special, base.keep_special_tokens(), model));
        }
        if (auto error = encode_text(prompt, adds_special, model)) return *std::move(error);
    }
    if (auto error = judge_echo(call)) return *std::move(error);
    return call;
}

client::Generate GenerationCall::wish(size_t prompt) const {
    client::Generate whole = prompts[prompt];
    whole.MergeFrom(common);
    return whole;
}

}  // namespace afd::daemon
