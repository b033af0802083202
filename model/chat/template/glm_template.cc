// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/glm_template.h"

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {

namespace {

constexpr std::string_view kGlmToolsBefore =
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
constexpr std::string_view kGlmToolsBehind =
    "</tools>\n\nFor each function call, output the function name and arguments within the "
    "following XML format:\n";
constexpr std::string_view k45Call =
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}"
    "</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n"
    "</tool_call>";
constexpr std::string_view k47Call =
    "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>"
    "<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>";

}  // namespace

Result<ChatPrompt> GlmTemplate::render(const Conversation& conversation) const {
    const bool thinks = conversation.thinking.value_or(true);
    const bool is_45 = form_ == Form::k45;
    const int last_user = last_user_index(conversation);
    ChatPrompt prompt;
    prompt.token("[gMASK]").token("<sop>");
    if (!conversation.tools.empty()) AFD_TRY(render_tools(conversation, prompt));
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kTool) {
            render_result(conversation, i, prompt);
            continue;
        }
        prompt.token("<|" + std::string(name_of(message.role)) + "|>").text(line());
        if (message.role == ChatRole::kAssistant) {
            render_answer(message, static_cast<int>(i) > last_user, prompt);
            AFD_TRY(render_calls(message, i, prompt));
            continue;
        }
        prompt.text(message.content);
        const bool is_question = message.role == ChatRole::kUser;
        if (is_45 && is_question && !thinks && !message.content.ends_with("/nothink")) {
            prompt.token("/nothink");
        }
    }
    if (!conversation.add_generation_prompt) return prompt;
    prompt.token("<|assistant|>");
    if (!is_45) {
        prompt.token(thinks ? "<think>" : "</think>");
    } else if (!thinks) {
        prompt.text("\n").token("<think>").token("</think>");
    }
    return prompt;
}

Result<> GlmTemplate::render_tools(const Conversation& conversation, ChatPrompt& prompt) const {
    prompt.markup(kGlmToolsBefore);
    for (size_t i = 0; i < conversation.tools.size(); ++i) {
        AFD_ASSIGN(const std::string tool,
                   spaced_json(conversation.tools[i], fmt::format("tools[{}]", i)));
        prompt.text(tool).text("\n");
    }
    prompt.markup(kGlmToolsBehind).markup(form_ == Form::k45 ? k45Call : k47Call);
    return {};
}

Result<> GlmTemplate::render_calls(const ChatMessage& message,
                                   size_t index,
                                   ChatPrompt& prompt) const {
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        AFD_ASSIGN(const std::vector<Argument> arguments, arguments_of(message, index, i));
        prompt.text(line()).token("<tool_call>").text(message.tool_calls[i].name).text(line());
        for (const Argument& argument : arguments) {
            prompt.token("<arg_key>").text(argument.name).token("</arg_key>").text(line());
            prompt.token("<arg_value>").text(argument.text).token("</arg_value>").text(line());
        }
        prompt.token("</tool_call>");
    }
    return {};
}

// Results that follow each other share a mark.
void GlmTemplate::render_result(const Conversation& conversation,
                                size_t index,
                                ChatPrompt& prompt) const {
    const auto& messages = conversation.messages;
    const bool is_first = index == 0 || messages[index - 1].role != ChatRole::kTool;
    if (is_first) prompt.token("<|observation|>");
    prompt.text(line()).token("<tool_response>").text(line()).text(messages[index].content);
    prompt.text(line()).token("</tool_response>");
}

void GlmTemplate::render_answer(const ChatMessage& message,
                                bool shows_thought,
                                ChatPrompt& prompt) const {
    const Answer answer = split_reasoning(message);
    const std::string_view thought = shows_thought ? strip(answer.reasoning) : "";
    if (form_ == Form::k45 || !thought.empty()) prompt.token("<think>").text(thought);
    prompt.token("</think>");
    const std::string_view content = strip(answer.content);
    if (!content.empty()) prompt.text(line()).text(content);
}

OutputSyntax GlmTemplate::output(const Conversation& conversation) const {
    OutputSyntax syntax{.reasoning = ReasoningSyntax::kTagged};
    const bool thinks = conversation.thinking.value_or(true);
    if (form_ == Form::k47 && conversation.add_generation_prompt) {
        syntax.reasoning = thinks ? ReasoningSyntax::kStarted : ReasoningSyntax::kNone;
    }
    syntax.follows_thought = !thinks && conversation.add_generation_prompt;
    if (!conversation.tools.empty()) {
        syntax.tools = ToolSyntax::kGlm;
        syntax.types = ParameterTypes::of(conversation.tools);
    }
    return syntax;
}

}  // namespace afd::model
