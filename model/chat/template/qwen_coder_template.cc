// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/qwen_coder_template.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ToolJson = nlohmann::ordered_json;

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kDefaultIdentity =
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks.";
constexpr std::string_view kCoderToolsBehind =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
    "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
    "function call available, answer the question like normal with your current knowledge and do "
    "not tell the user about function calls\n</IMPORTANT>";

void render_element(std::string_view name, std::string_view text, ChatPrompt& prompt) {
    prompt.text("\n<").text(name).text(">").text(text).text("</").text(name).text(">");
}

// As Python shows a list, where there are several.
std::string type_text(const ToolJson& type) {
    if (!type.is_array()) return python_text(type);
    std::string text = "[";
    for (const ToolJson& one : type) {
        if (text.size() > 1) text += ", ";
        text += one.is_string() ? "'" + one.get<std::string>() + "'" : python_text(one);
    }
    return text + "]";
}

// The members of `object` but those of these names.
void render_members(const ToolJson& object,
                    std::initializer_list<std::string_view> without,
                    ChatPrompt& prompt) {
    if (!object.is_object()) return;
    for (const auto& [name, value] : object.items()) {
        if (std::ranges::find(without, name) != without.end()) continue;
        const bool is_nested = value.is_object() || value.is_array();
        render_element(name, is_nested ? spaced_text(value) : python_text(value), prompt);
    }
}

void render_description(const ToolJson& described, ChatPrompt& prompt) {
    const auto found = described.find("description");
    if (found == described.end()) return;
    render_element("description", strip(python_text(*found)), prompt);
}

void render_parameter(const std::string& name, const ToolJson& described, ChatPrompt& prompt) {
    prompt.text("\n<parameter>");
    render_element("name", name, prompt);
    if (described.is_object()) {
        const auto type = described.find("type");
        if (type != described.end()) render_element("type", type_text(*type), prompt);
        render_description(described, prompt);
        render_members(described, {"name", "type", "description"}, prompt);
    }
    prompt.text("\n</parameter>");
}

void render_function(const ToolJson& function, ChatPrompt& prompt) {
    prompt.text("\n<function>");
    render_element("name", function["name"].get<std::string>(), prompt);
    render_description(function, prompt);
    prompt.text("\n<parameters>");
    const auto parameters = function.find("parameters");
    if (parameters != function.end() && parameters->is_object()) {
        const auto properties = parameters->find("properties");
        if (properties != parameters->end() && properties->is_object()) {
            for (const auto& [name, described] : properties->items()) {
                render_parameter(name, described, prompt);
            }
        }
        render_members(*parameters, {"type", "properties"}, prompt);
    }
    prompt.text("\n</parameters>");
    render_members(function, {"type", "name", "description", "parameters"}, prompt);
    prompt.text("\n</function>");
}

Result<> render_coder_tools(const Conversation& conversation, ChatPrompt& prompt) {
    prompt.text("\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
    for (size_t i = 0; i < conversation.tools.size(); ++i) {
        const std::string place = fmt::format("tools[{}]", i);
        AFD_ASSIGN(const ToolJson function, function_json(conversation.tools[i], place));
        render_function(function, prompt);
    }
    prompt.markup(kCoderToolsBehind);
    return {};
}

void render_turn(const ChatMessage& message, ChatPrompt& prompt) {
    prompt.token(kTurnStart).text(name_of(message.role)).text("\n").text(message.content);
    prompt.token(kTurnEnd).text("\n");
}

Result<> render_calls(const ChatMessage& message, size_t index, ChatPrompt& prompt) {
    const std::string_view content = strip(message.content);
    prompt.token(kTurnStart).text("assistant");
    if (!content.empty()) prompt.text("\n").text(content).text("\n");
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        AFD_ASSIGN(const std::vector<Argument> arguments, arguments_of(message, index, i));
        prompt.text("\n").token("<tool_call>").text("\n<function=");
        prompt.text(message.tool_calls[i].name).text(">\n");
        for (const Argument& argument : arguments) {
            const std::string_view text = argument.text;
            prompt.text("<parameter=").text(argument.name).text(">\n");
            prompt.text(argument.is_string ? text : python_word(text)).text("\n</parameter>\n");
        }
        prompt.text("</function>\n").token("</tool_call>");
    }
    prompt.token(kTurnEnd).text("\n");
    return {};
}

// Results that follow each other share a turn of the user.
void render_result(const Conversation& conversation, size_t index, ChatPrompt& prompt) {
    const auto& messages = conversation.messages;
    const bool is_first = index == 0 || messages[index - 1].role != ChatRole::kTool;
    const bool is_last =
        index + 1 == messages.size() || messages[index + 1].role != ChatRole::kTool;
    if (is_first) prompt.token(kTurnStart).text("user\n");
    prompt.token("<tool_response>").text("\n").text(messages[index].content);
    prompt.text("\n").token("</tool_response>").text("\n");
    if (is_last) prompt.token(kTurnEnd).text("\n");
}

}  // namespace

Result<ChatPrompt> QwenCoderTemplate::render(const Conversation& conversation) const {
    const auto& messages = conversation.messages;
    const bool has_system = messages.front().role == ChatRole::kSystem;
    ChatPrompt prompt;
    if (has_system || !conversation.tools.empty()) {
        prompt.token(kTurnStart).text("system\n");
        prompt.text(has_system ? std::string_view(messages.front().content) : kDefaultIdentity);
        if (!conversation.tools.empty()) AFD_TRY(render_coder_tools(conversation, prompt));
        prompt.token(kTurnEnd).text("\n");
    }
    for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
        if (messages[i].role == ChatRole::kTool) {
            render_result(conversation, i, prompt);
        } else if (!messages[i].tool_calls.empty()) {
            AFD_TRY(render_calls(messages[i], i, prompt));
        } else {
            render_turn(messages[i], prompt);
        }
    }
    if (conversation.add_generation_prompt) prompt.token(kTurnStart).text("assistant\n");
    return prompt;
}

OutputSyntax QwenCoderTemplate::output(const Conversation& conversation) const {
    if (conversation.tools.empty()) return {};
    return {.tools = ToolSyntax::kQwenCoder, .types = ParameterTypes::of(conversation.tools)};
}

}  // namespace afd::model
