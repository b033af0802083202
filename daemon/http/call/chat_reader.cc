// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/call/chat_reader.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "daemon/http/call/tool_choice_reader.h"
#include "model/chat/message/chat_text.h"
#include "model/chat/template/chat_template.h"
#include "model/json/ordered_json.h"

namespace afd::daemon {

namespace {

using model::ChatMessage;
using model::Conversation;

// A text, or an array of parts that are texts, between which are line breaks.
std::string read_content(FieldReader& fields) {
    const nlohmann::json* content = fields.any("content");
    if (content == nullptr) return "";
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) {
        fields.fail(bad_field(fields.path_of("content"),
                              fmt::format("{} is {}; it must be a string or an array of parts",
                                          fields.path_of("content"),
                                          type_of(*content))));
        return "";
    }
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
        const std::string path = fields.path_of(fmt::format("content[{}]", i));
        FieldReader part((*content)[i], path + '.');
        const std::string type = part.text("type").value_or("");
        if (!part.error() && type != "text") {
            part.fail(unsupported_field(
                path + ".type", fmt::format("{}.type = '{}': only text is served", path, type)));
        }
        if (i > 0) text += '\n';
        text += part.text("text").value_or("");
        if (part.error()) fields.fail(*part.error());
    }
    return text;
}

void read_calls(FieldReader& fields, ChatMessage& message) {
    const nlohmann::json* calls = fields.any("tool_calls");
    if (calls == nullptr) return;
    const std::string path = fields.path_of("tool_calls");
    if (!calls->is_array()) {
        fields.fail(bad_field(path, path + " must be an array"));
        return;
    }
    for (size_t i = 0; i < calls->size(); ++i) {
        FieldReader call((*calls)[i], fmt::format("{}[{}].", path, i));
        model::ToolCall& read = message.tool_calls.emplace_back();
        read.id = call.text("id").value_or("");
        const nlohmann::json* function = call.any("function");
        if (function == nullptr) call.fail(bad_field(path, path + " must have a function each"));
        if (function != nullptr) {
            FieldReader inner(*function, call.path_of("function."));
            read.name = inner.text("name").value_or("");
            read.arguments = inner.text("arguments").value_or("");
            // A call without arguments, as some clients and models write it.
            if (model::strip(read.arguments).empty()) read.arguments = "{}";
            if (inner.error()) call.fail(*inner.error());
        }
        if (call.error()) fields.fail(*call.error());
    }
}

ChatMessage read_message(FieldReader& fields) {
    ChatMessage message;
    const std::string role = fields.text("role").value_or("");
    if (const auto known = model::chat_role(role)) {
        message.role = *known;
    } else {
        fields.fail(
            bad_field(fields.path_of("role"),
                      fmt::format("{} = '{}': must be system, developer, user, assistant or "
                                  "tool",
                                  fields.path_of("role"),
                                  role)));
    }
    message.content = read_content(fields);
    // An assistant may have said nothing but calls.
    if (message.role != model::ChatRole::kAssistant && fields.any("content") == nullptr) {
        fields.fail(
            bad_field(fields.path_of("content"), fields.path_of("content") + " is missing"));
    }
    // Of newer servers the clients have it under the other name, or under both.
    const auto reasoning = fields.text("reasoning");
    message.reasoning = fields.text("reasoning_content").value_or(reasoning.value_or(""));
    message.tool_call_id = fields.text("tool_call_id").value_or("");
    read_calls(fields, message);
    return message;
}

// As the client wrote them: in the values of a FieldReader members have the order of the alphabet.
void show_tools(FieldReader& fields, std::string_view body, Conversation& conversation) {
    const auto read = model::parse_ordered_member(body, "tools", "tools");
    if (!read.ok()) {
        fields.fail(bad_field("tools", read.error().message));
        return;
    }
    for (const nlohmann::ordered_json& tool : read.value().at("tools")) {
        conversation.tools.push_back(model::compact_text(tool));
    }
}

bool has_name(const nlohmann::json& function) {
    if (!function.is_object()) return false;
    const auto name = function.find("name");
    return name != function.end() && name->is_string() &&
           !name->get_ref<const std::string&>().empty();
}

// Which tools the model may call.
void read_tools(FieldReader& fields, std::string_view body, Conversation& conversation) {
    const bool is_none = read_tool_choice(fields).kind == ToolChoice::Kind::kNone;
    const nlohmann::json* tools = fields.any("tools");
    if (tools == nullptr) return;
    if (!tools->is_array()) {
        fields.fail(
            bad_field("tools", fmt::format("tools is {}; it must be an array", type_of(*tools))));
        return;
    }
    for (size_t i = 0; i < tools->size(); ++i) {
        const nlohmann::json& tool = (*tools)[i];
        FieldReader read(tool, fmt::format("tools[{}].", i));
        if (!read.error() && read.text("type").value_or("function") != "function") {
            read.fail(
                unsupported_field(read.path_of("type"), "only functions are served as tools"));
        }
        const nlohmann::json* function = read.any("function");
        if (function == nullptr || !has_name(*function)) {
            read.fail(bad_field(
                read.path_of("function"),
                fmt::format("{} must be an object with a name", read.path_of("function"))));
        }
        if (read.error()) {
            fields.fail(*read.error());
            return;
        }
    }
    if (!is_none) show_tools(fields, body, conversation);
}

// Whether and how much to think, as the API and vLLM's options of templates say it; for the switch
// they have two names.
void read_template_options(FieldReader& fields, Conversation& conversation) {
    conversation.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
    conversation.effort = fields.text("reasoning_effort").value_or("");
    const nlohmann::json* options = fields.any("chat_template_kwargs");
    if (options == nullptr) return;
    FieldReader inner(*options, "chat_template_kwargs.");
    for (const char* name : {"enable_thinking", "thinking"}) {
        if (const auto thinking = inner.boolean(name)) conversation.thinking = *thinking;
    }
    if (const auto effort = inner.text("reasoning_effort")) conversation.effort = *effort;
    if (inner.error()) fields.fail(*inner.error());
    fields.add_unknown(inner);
}

ApiError of_template(const Error& error) {
    const bool is_about_tools = error.code == Code::kUnimplemented;
    if (is_about_tools) return unsupported_field("tools", error.message);
    const bool is_about_effort = error.message.starts_with("reasoning_effort ");
    return bad_field(is_about_effort ? "reasoning_effort" : "messages", error.message);
}

}  // namespace

Conversation read_conversation(FieldReader& fields, std::string_view body) {
    Conversation conversation;
    const nlohmann::json* messages = fields.any("messages");
    if (messages == nullptr || !messages->is_array() || messages->empty()) {
        fields.fail(bad_field("messages", "messages must be an array with a message at least"));
        return conversation;
    }
    for (size_t i = 0; i < messages->size(); ++i) {
        FieldReader message((*messages)[i], fmt::format("messages[{}].", i));
        conversation.messages.push_back(read_message(message));
        if (message.error()) {
            fields.fail(*message.error());
            return conversation;
        }
        fields.add_unknown(message);
    }
    read_tools(fields, body, conversation);
    read_template_options(fields, conversation);
    return conversation;
}

ApiResult<client::TokenIds> render_prompt(const Conversation& conversation, const ApiModel& model) {
    if (model.chat == nullptr || model.tokenizer == nullptr) {
        return bad_field(
            "messages",
            fmt::format("chats are not served: {}; use /v1/completions", model.no_chat));
    }
    const Result<model::ChatPrompt> prompt = model.chat->render(conversation);
    if (!prompt.ok()) return of_template(prompt.error());
    // Before the text is looked at in any other way: encoding costs some hundred times as much.
    const std::string text = prompt.value().to_text();
    const uint64_t tokens_min = model.tokenizer->tokens_min(text);
    if (tokens_min > model.context_length) {
        return ApiError{
            .status = 400,
            .code = "context_length_exceeded",
            .param = "messages",
            .message = fmt::format("the messages have {} bytes, which are at least {} tokens: at "
                                   "most {} fit, the context length of the model; send fewer or "
                                   "shorter messages",
                                   text.size(),
                                   tokens_min,
                                   model.context_length)};
    }
    const Result<std::vector<uint32_t>> ids = prompt.value().encode(*model.tokenizer);
    if (!ids.ok()) return bad_field("messages", ids.error().message);
    client::TokenIds read;
    read.mutable_ids()->Assign(ids.value().begin(), ids.value().end());
    return read;
}

}  // namespace afd::daemon
