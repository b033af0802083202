// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/minimax_template.h"

#include <utility>

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr std::string_view kMiniMaxToolsBefore =
    "\n\n# Tools\nYou may call one or more tools to assist with the user query.\nHere are the "
    "tools available in JSONSchema format:\n\n<tools>\n";
constexpr std::string_view kMiniMaxToolsBehind =
    "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass parameters:\n\n"
    "<minimax:tool_call>\n<invoke name=\"tool-name-1\">\n<parameter name=\"param-key-1\">"
    "param-value-1</parameter>\n<parameter name=\"param-key-2\">param-value-2</parameter>\n...\n"
    "</invoke>\n</minimax:tool_call>";

Result<> render_minimax_calls(const ChatMessage& message, size_t index, ChatPrompt& prompt) {
    if (message.tool_calls.empty()) return {};
    prompt.text("\n").token("<minimax:tool_call>").text("\n");
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        AFD_ASSIGN(const std::vector<Argument> arguments, arguments_of(message, index, i));
        prompt.text("<invoke name=\"").text(message.tool_calls[i].name).text("\">\n");
        for (const Argument& argument : arguments) {
            prompt.text("<parameter name=\"").text(argument.name).text("\">");
            prompt.text(argument.text).text("</parameter>\n");
        }
        prompt.text("</invoke>\n");
    }
    prompt.token("</minimax:tool_call>");
    return {};
}

Result<> render_minimax_answer(const ChatMessage& message,
                               size_t index,
                               bool shows_thought,
                               ChatPrompt& prompt) {
    const Answer answer = split_reasoning(message);
    prompt.token("]~b]").text("ai\n");
    if (shows_thought && !answer.reasoning.empty()) {
        prompt.token("<think>").text("\n").text(answer.reasoning).text("\n");
        prompt.token("</think>").text("\n\n");
    }
    prompt.text(answer.content);
    AFD_TRY(render_minimax_calls(message, index, prompt));
    prompt.token("[e~[").text("\n");
    return {};
}

// Results that follow each other share a turn.
void render_minimax_result(const Conversation& conversation, size_t index, ChatPrompt& prompt) {
    const auto& messages = conversation.messages;
    const bool is_first = messages[index - 1].role != ChatRole::kTool;
    const bool is_last =
        index + 1 == messages.size() || messages[index + 1].role != ChatRole::kTool;
    if (is_first) prompt.token("]~b]").text("tool");
    prompt.text("\n<response>").text(messages[index].content).text("</response>");
    if (is_last) prompt.token("[e~[").text("\n");
}

}  // namespace

MiniMaxTemplate::MiniMaxTemplate(std::string default_system, bool has_tools)
    : default_system_(std::move(default_system)), has_tools_(has_tools) {}

Result<ChatPrompt> MiniMaxTemplate::render(const Conversation& conversation) const {
    if (!has_tools_) AFD_TRY(refuse_tools(conversation, name()));
    AFD_TRY(refuse_later_systems(conversation, name()));
    AFD_TRY(refuse_results_without_calls(conversation, name()));
    const int last_user = last_user_index(conversation);
    ChatPrompt prompt;
    AFD_TRY(render_system(conversation, prompt));
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kUser) {
            prompt.token("]~b]").text("user\n").text(message.content).token("[e~[").text("\n");
        } else if (message.role == ChatRole::kAssistant) {
            AFD_TRY(render_minimax_answer(message, i, static_cast<int>(i) > last_user, prompt));
        } else if (message.role == ChatRole::kTool) {
            render_minimax_result(conversation, i, prompt);
        }
    }
    if (conversation.add_generation_prompt) {
        prompt.token("]~b]").text("ai\n").token("<think>").text("\n");
    }
    return prompt;
}

Result<> MiniMaxTemplate::render_system(const Conversation& conversation,
                                        ChatPrompt& prompt) const {
    const ChatMessage& first = conversation.messages.front();
    const bool has_system = first.role == ChatRole::kSystem && !first.content.empty();
    prompt.token("]~!b[").token("]~b]").text("system\n");
    prompt.text(has_system ? first.content : default_system_);
    if (!conversation.tools.empty()) {
        prompt.markup(kMiniMaxToolsBefore);
        for (size_t i = 0; i < conversation.tools.size(); ++i) {
            AFD_ASSIGN(const std::string function,
                       spaced_function(conversation.tools[i], fmt::format("tools[{}]", i)));
            prompt.text("<tool>").text(function).text("</tool>\n");
        }
        prompt.markup(kMiniMaxToolsBehind);
    }
    prompt.token("[e~[").text("\n");
    return {};
}

OutputSyntax MiniMaxTemplate::output(const Conversation& conversation) const {
    OutputSyntax syntax{.reasoning = conversation.add_generation_prompt ? ReasoningSyntax::kStarted
                                                                        : ReasoningSyntax::kTagged};
    if (!conversation.tools.empty()) {
        syntax.tools = ToolSyntax::kMiniMax;
        syntax.types = ParameterTypes::of(conversation.tools);
    }
    return syntax;
}

}  // namespace afd::model
