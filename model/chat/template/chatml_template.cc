// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/chatml_template.h"

#include <utility>

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

constexpr std::string_view kQwenToolsBefore =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kQwenToolsBehind =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call>";

bool is_tool_result(const Conversation& conversation, size_t index) {
    return index < conversation.messages.size() &&
           conversation.messages[index].role == ChatRole::kTool;
}

void render_tool_result(const Conversation& conversation, size_t index, ChatPrompt& prompt) {
    if (index == 0 || !is_tool_result(conversation, index - 1)) {
        prompt.token(kStart).text("user");
    }
    prompt.text("\n").token("<tool_response>").text("\n");
    prompt.text(conversation.messages[index].content);
    prompt.text("\n").token("</tool_response>");
    if (!is_tool_result(conversation, index + 1)) prompt.token(kEnd).text("\n");
}

}  // namespace

ChatmlTemplate::ChatmlTemplate(std::string default_system, ChatmlThinking thinking, bool has_tools)
    : default_system_(std::move(default_system)), thinking_(thinking), has_tools_(has_tools) {}

std::string_view ChatmlTemplate::name() const {
    switch (thinking_) {
        case ChatmlThinking::kNone:
            return "chatml";
        case ChatmlThinking::kUnlessAsked:
            return "qwen3";
        case ChatmlThinking::kAlways:
            return "qwen3_thinking";
    }
    return "chatml";
}

Result<ChatPrompt> ChatmlTemplate::render(const Conversation& conversation) const {
    if (!has_tools_) AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    AFD_TRY(render_start(conversation, prompt));
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kTool) {
            render_tool_result(conversation, i, prompt);
        } else if (message.role == ChatRole::kAssistant) {
            AFD_TRY(render_answer(message, i, conversation, prompt));
        } else if (message.role == ChatRole::kUser || i > 0) {
            prompt.token(kStart).text(name_of(message.role)).text("\n").text(message.content);
            prompt.token(kEnd).text("\n");
        }
    }
    if (!conversation.add_generation_prompt) return prompt;
    prompt.token(kStart).text("assistant\n");
    if (thinking_ == ChatmlThinking::kAlways) {
        prompt.token("<think>").text("\n");
    } else if (thinking_ == ChatmlThinking::kUnlessAsked && !conversation.thinking.value_or(true)) {
        prompt.token("<think>").text("\n\n").token("</think>").text("\n\n");
    }
    return prompt;
}

// The system message, of the conversation or the default, and the tools in it.
Result<> ChatmlTemplate::render_start(const Conversation& conversation, ChatPrompt& prompt) const {
    const ChatMessage& first = conversation.messages.front();
    const bool has_system = first.role == ChatRole::kSystem;
    const std::string& system = has_system ? first.content : default_system_;
    if (conversation.tools.empty()) {
        if (!has_system && system.empty()) return {};
        prompt.token(kStart).text("system\n").text(system).token(kEnd).text("\n");
        return {};
    }
    prompt.token(kStart).text("system\n");
    if (has_system || !system.empty()) prompt.text(system).text("\n\n");
    prompt.markup(kQwenToolsBefore);
    for (size_t i = 0; i < conversation.tools.size(); ++i) {
        AFD_ASSIGN(const std::string tool,
                   spaced_json(conversation.tools[i], fmt::format("tools[{}]", i)));
        prompt.text("\n").text(tool);
    }
    prompt.markup(kQwenToolsBehind).token(kEnd).text("\n");
    return {};
}

Result<> ChatmlTemplate::render_answer(const ChatMessage& message,
                                       size_t index,
                                       const Conversation& conversation,
                                       ChatPrompt& prompt) const {
    const bool thinks = thinking_ != ChatmlThinking::kNone;
    const Answer answer = thinks ? split_reasoning(message) : Answer{"", message.content};
    prompt.token(kStart).text("assistant\n");
    const bool is_last = index + 1 == conversation.messages.size();
    const bool shows_thought = thinks && static_cast<int>(index) > last_question(conversation) &&
                               (is_last || !answer.reasoning.empty());
    if (shows_thought) {
        prompt.token("<think>").text("\n");
        prompt.text(strip_left(strip_right(answer.reasoning, "\n"), "\n"));
        prompt.text("\n").token("</think>").text("\n\n");
        prompt.text(strip_left(answer.content, "\n"));
    } else {
        prompt.text(answer.content);
    }
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        const ToolCall& call = message.tool_calls[i];
        AFD_ASSIGN(
            const std::string arguments,
            spaced_json(call.arguments,
                        fmt::format("messages[{}].tool_calls[{}].function.arguments", index, i)));
        if (i > 0 || !answer.content.empty()) prompt.text("\n");
        prompt.token("<tool_call>").text("\n{\"name\": \"").text(call.name);
        prompt.text("\", \"arguments\": ").text(arguments).text("}\n").token("</tool_call>");
    }
    prompt.token(kEnd).text("\n");
    return {};
}

// As that template counts: a user's turn that is a tool result is no question.
int ChatmlTemplate::last_question(const Conversation& conversation) const {
    for (size_t i = conversation.messages.size(); i-- > 0;) {
        const ChatMessage& message = conversation.messages[i];
        const bool is_result = message.content.starts_with("<tool_response>") &&
                               message.content.ends_with("</tool_response>");
        if (message.role == ChatRole::kUser && !is_result) return static_cast<int>(i);
    }
    return static_cast<int>(conversation.messages.size()) - 1;
}

OutputSyntax ChatmlTemplate::output(const Conversation& conversation) const {
    OutputSyntax syntax;
    if (thinking_ == ChatmlThinking::kAlways && conversation.add_generation_prompt) {
        syntax.reasoning = ReasoningSyntax::kStarted;
    } else if (thinking_ != ChatmlThinking::kNone) {
        syntax.reasoning = ReasoningSyntax::kTagged;
    }
    syntax.follows_thought = thinking_ == ChatmlThinking::kUnlessAsked &&
                             conversation.add_generation_prompt &&
                             !conversation.thinking.value_or(true);
    if (!conversation.tools.empty()) syntax.tools = ToolSyntax::kJson;
    return syntax;
}

}  // namespace afd::model
