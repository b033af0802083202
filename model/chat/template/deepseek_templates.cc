// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/deepseek_templates.h"

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";

constexpr std::string_view kV31ToolsBehind =
    "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments"
    "<｜tool▁call▁end｜>{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n- `tool_call_name` "
    "must be an exact match to one of the available tools\n- `tool_call_arguments` must be valid "
    "JSON that strictly follows the tool's Parameters Schema\n- For multiple tool calls, chain "
    "them directly without separators or spaces";

// All system messages, wherever they stand, come first.
void render_system(const Conversation& conversation, ChatPrompt& prompt, bool& is_empty) {
    is_empty = true;
    for (const ChatMessage& message : conversation.messages) {
        if (message.role != ChatRole::kSystem) continue;
        if (!is_empty) prompt.text("\n\n");
        prompt.text(message.content);
        is_empty = false;
    }
}

std::string_view behind_thought(std::string_view content) {
    constexpr std::string_view kClose = "</think>";
    const size_t close = content.find(kClose);
    return close == std::string_view::npos ? content : content.substr(close + kClose.size());
}

std::string_view behind_all_thoughts(std::string_view content) {
    constexpr std::string_view kClose = "</think>";
    const size_t close = content.rfind(kClose);
    return close == std::string_view::npos ? content : content.substr(close + kClose.size());
}

void render_v3_calls(const ChatMessage& message, ChatPrompt& prompt) {
    prompt.text(message.content).token(kCallsBegin);
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        if (i > 0) prompt.text("\n");
        prompt.token(kCallBegin).text("function").token(kSeparator);
        prompt.text(message.tool_calls[i].name).text("\n```json\n");
        prompt.text(message.tool_calls[i].arguments).text("\n```").token(kCallEnd);
    }
    prompt.token(kCallsEnd).token(kEos);
}

void render_v31_calls(const ChatMessage& message, ChatPrompt& prompt) {
    prompt.text(message.content).token(kCallsBegin);
    for (const ToolCall& call : message.tool_calls) {
        prompt.token(kCallBegin).text(call.name).token(kSeparator).text(call.arguments);
        prompt.token(kCallEnd);
    }
    prompt.token(kCallsEnd).token(kEos);
}

Result<> render_v31_tools(const Conversation& conversation, bool is_first, ChatPrompt& prompt) {
    if (conversation.tools.empty()) return {};
    if (!is_first) prompt.text("\n\n");
    prompt.text("## Tools\nYou have access to the following tools:\n");
    for (size_t i = 0; i < conversation.tools.size(); ++i) {
        AFD_ASSIGN(const ToolFunction function,
                   tool_function(conversation.tools[i], fmt::format("tools[{}]", i)));
        prompt.text("\n### ").text(function.name).text("\nDescription: ");
        prompt.text(function.description).text("\n\nParameters: ").text(function.parameters);
        prompt.text("\n");
    }
    prompt.markup(kV31ToolsBehind);
    return {};
}

}  // namespace

std::string_view DeepSeekV2Template::end_token() const {
    return kEos;
}

Result<ChatPrompt> DeepSeekV2Template::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    prompt.token(kBos);
    for (const ChatMessage& message : conversation.messages) {
        if (message.role == ChatRole::kAssistant) {
            prompt.text("Assistant: ").text(message.content).token(kEos);
        } else {
            if (message.role == ChatRole::kUser) prompt.text("User: ");
            prompt.text(message.content).text("\n\n");
        }
    }
    if (conversation.add_generation_prompt) prompt.text("Assistant:");
    return prompt;
}

std::string_view DeepSeekV3Template::end_token() const {
    return kEos;
}

Result<ChatPrompt> DeepSeekV3Template::render(const Conversation& conversation) const {
    if (!conversation.tools.empty()) {
        return unimplemented(
            "the chat template of this model ({}) has no place for tools: describe them in the "
            "system message",
            with(name()));
    }
    ChatPrompt prompt;
    prompt.token(kBos);
    bool is_empty = true;
    render_system(conversation, prompt, is_empty);
    bool has_result = false;
    for (const ChatMessage& message : conversation.messages) {
        if (message.role == ChatRole::kUser) {
            has_result = false;
            prompt.token(kUser).text(message.content);
        } else if (message.role == ChatRole::kTool) {
            prompt.text(has_result ? "\n" : "");
            if (!has_result) prompt.token("<｜tool▁outputs▁begin｜>");
            prompt.token("<｜tool▁output▁begin｜>").text(message.content);
            prompt.token("<｜tool▁output▁end｜>");
            has_result = true;
        } else if (message.role == ChatRole::kAssistant) {
            prompt.token(has_result ? "<｜tool▁outputs▁end｜>" : kAssistant);
            has_result = false;
            if (!message.tool_calls.empty()) {
                render_v3_calls(message, prompt);
            } else {
                const std::string_view content = message.content;
                prompt.text(thinks() ? behind_all_thoughts(content) : content).token(kEos);
            }
        }
    }
    if (has_result) prompt.token("<｜tool▁outputs▁end｜>");
    if (!conversation.add_generation_prompt || has_result) return prompt;
    prompt.token(kAssistant);
    if (thinking_ == Thinking::kStarted) prompt.token("<think>").text("\n");
    return prompt;
}

OutputSyntax DeepSeekV3Template::output(const Conversation& conversation) const {
    const bool follows_result = conversation.messages.back().role == ChatRole::kTool;
    OutputSyntax syntax{.tools = ToolSyntax::kDeepSeekV3};
    const bool ends_within =
        thinking_ == Thinking::kStarted && conversation.add_generation_prompt && !follows_result;
    if (thinks()) {
        syntax.reasoning = ends_within ? ReasoningSyntax::kStarted : ReasoningSyntax::kTagged;
    }
    return syntax;
}

std::string_view DeepSeekV31Template::end_token() const {
    return kEos;
}

Result<ChatPrompt> DeepSeekV31Template::render(const Conversation& conversation) const {
    ChatPrompt prompt;
    prompt.token(kBos);
    bool is_empty = true;
    render_system(conversation, prompt, is_empty);
    AFD_TRY(render_v31_tools(conversation, is_empty, prompt));
    bool follows_user = false;
    bool follows_result = false;
    for (const ChatMessage& message : conversation.messages) {
        if (message.role == ChatRole::kUser) {
            prompt.token(kUser).text(message.content);
        } else if (message.role == ChatRole::kTool) {
            prompt.token("<｜tool▁output▁begin｜>").text(message.content);
            prompt.token("<｜tool▁output▁end｜>");
        } else if (message.role == ChatRole::kAssistant) {
            if (follows_user) prompt.token(kAssistant).token("</think>");
            if (!message.tool_calls.empty()) {
                render_v31_calls(message, prompt);
            } else {
                const std::string_view content = message.content;
                prompt.text(follows_result ? content : behind_thought(content)).token(kEos);
            }
        } else {
            continue;
        }
        follows_user = message.role == ChatRole::kUser;
        follows_result = message.role == ChatRole::kTool;
    }
    if (conversation.add_generation_prompt && follows_user) {
        prompt.token(kAssistant);
        prompt.token(conversation.thinking.value_or(false) ? "<think>" : "</think>");
    }
    return prompt;
}

OutputSyntax DeepSeekV31Template::output(const Conversation& conversation) const {
    OutputSyntax syntax;
    const bool is_asked =
        conversation.messages.back().role == ChatRole::kUser && conversation.add_generation_prompt;
    const bool thinks = conversation.thinking.value_or(false);
    if (is_asked && thinks) syntax.reasoning = ReasoningSyntax::kStarted;
    syntax.follows_thought = is_asked && !thinks;
    if (!conversation.tools.empty()) syntax.tools = ToolSyntax::kDeepSeekV31;
    return syntax;
}

}  // namespace afd::model
