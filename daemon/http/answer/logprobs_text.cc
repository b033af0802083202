// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/logprobs_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "daemon/http/message/json_text.h"
#include "model/unicode/utf8.h"

namespace afd::daemon {

namespace {

void append_logprob(std::optional<float> logprob, std::string& out) {
    if (logprob) {
        append_json_number(*logprob, out);
    } else {
        out += "null";
    }
}

void append_bytes(std::string_view bytes, std::string& out) {
    out += '[';
    for (const char byte : bytes) {
        if (out.back() != '[') out += ',';
        append_json_number(uint64_t{static_cast<unsigned char>(byte)}, out);
    }
    out += ']';
}

}  // namespace

std::vector<LogprobsText::Alternative> LogprobsText::alternatives_of(
    const client::TopLogprobs& top) {
    std::vector<Alternative> alternatives;
    for (int i = 0; i < std::min(top.token_ids_size(), top.logprobs_size()); ++i) {
        alternatives.push_back({top.token_ids(i), top.logprobs(i)});
    }
    return alternatives;
}

// Half a character is written as OpenAI does; a token without text (an end mark) by its number.
std::string LogprobsText::text_of(uint32_t token) const {
    const std::string_view bytes =
        model_.tokenizer == nullptr ? std::string_view() : model_.tokenizer->token_bytes(token);
    if (bytes.empty()) return fmt::format("token_id:{}", token);
    if (model::is_valid_utf8(bytes)) return std::string(bytes);
    std::string text = "bytes:";
    for (const char byte : bytes) {
        text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    return text;
}

void LogprobsText::add(uint32_t token,
                       std::optional<float> logprob,
                       uint64_t offset,
                       std::span<const Alternative> alternatives) {
    const char* comma = num_tokens_++ == 0 ? "" : ",";
    tokens_ += comma;
    if (is_chat_) {
        add_to_chat(token, logprob, alternatives);
        return;
    }
    append_json_string(text_of(token), tokens_);
    logprobs_ += comma;
    append_logprob(logprob, logprobs_);
    offsets_ += comma;
    append_json_number(offset, offsets_);
    top_ += comma;
    if (alternatives.empty()) {
        top_ += "null";
        return;
    }
    top_ += '{';
    bool has_own = !logprob;
    for (const Alternative& other : alternatives) {
        append_to_top(other);
        has_own |= other.token == token;
    }
    // As OpenAI does: who looks its own text up finds it.
    if (!has_own) append_to_top({token, *logprob});
    top_ += '}';
}

void LogprobsText::append_to_top(const Alternative& one) {
    if (top_.back() != '{') top_ += ',';
    append_json_string(text_of(one.token), top_);
    top_ += ':';
    append_json_number(one.logprob, top_);
}

void LogprobsText::add_to_chat(uint32_t token,
                               std::optional<float> logprob,
                               std::span<const Alternative> alternatives) {
    const auto append_token = [this](uint32_t id, std::optional<float> value) {
        tokens_ += R"({"token":)";
        append_json_string(text_of(id), tokens_);
        tokens_ += R"(,"logprob":)";
        append_logprob(value, tokens_);
        tokens_ += R"(,"bytes":)";
        append_bytes(
            model_.tokenizer == nullptr ? std::string_view() : model_.tokenizer->token_bytes(id),
            tokens_);
    };
    append_token(token, logprob);
    tokens_ += R"(,"top_logprobs":[)";
    for (size_t i = 0; i < alternatives.size(); ++i) {
        if (i > 0) tokens_ += ',';
        append_token(alternatives[i].token, alternatives[i].logprob);
        tokens_ += '}';
    }
    tokens_ += "]}";
}

void LogprobsText::clear() {
    num_tokens_ = 0;
    for (std::string* part : {&tokens_, &logprobs_, &top_, &offsets_}) part->clear();
}

void LogprobsText::give_memory_back() {
    num_tokens_ = 0;
    for (std::string* part : {&tokens_, &logprobs_, &top_, &offsets_}) *part = std::string();
}

void LogprobsText::append(std::string& out) const {
    if (is_chat_) {
        out.append(R"({"content":[)").append(tokens_).append(R"(],"refusal":null})");
        return;
    }
    out.append(R"({"tokens":[)").append(tokens_);
    out.append(R"(],"token_logprobs":[)").append(logprobs_).append(R"(],"top_logprobs":)");
    // All null: nobody asked for them.
    if (top_.find('{') == std::string::npos) {
        out += "null";
    } else {
        out.append("[").append(top_).append("]");
    }
    out.append(R"(,"text_offset":[)").append(offsets_).append("]}");
}

}  // namespace afd::daemon
