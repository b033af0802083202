// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/harmony_template.h"

#include <fmt/chrono.h>

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "model/chat/template/typescript_tools.h"
#include "model/json/ordered_json.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// What the model was trained to find there.
constexpr std::string_view kIdentity =
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n";
constexpr std::string_view kChannels =
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.";

constexpr std::string_view kCallChannel =
    "\nCalls to these tools must go to the commentary channel: 'functions'.";

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    return fmt::format("{:%Y-%m-%d}", local);
}

void render_message(std::string_view header, std::string_view content, ChatPrompt& prompt) {
    prompt.token("<|start|>").markup(header).token("<|message|>").text(content).token("<|end|>");
}

Result<> render_system(const Conversation& conversation, ChatPrompt& prompt) {
    const std::string date = conversation.date.empty() ? today() : conversation.date;
    const std::string effort = conversation.effort.empty() ? "medium" : conversation.effort;
    if (effort != "low" && effort != "medium" && effort != "high") {
        return invalid_argument("reasoning_effort = '{}': must be low, medium or high",
                                with(start_of(effort, 100)));
    }
    render_message("system",
                   fmt::format("{}Current date: {}\n\nReasoning: {}\n\n{}{}",
                               kIdentity,
                               date,
                               effort,
                               kChannels,
                               conversation.tools.empty() ? "" : kCallChannel),
                   prompt);
    return {};
}

Result<> render_developer(const Conversation& conversation, ChatPrompt& prompt) {
    const ChatMessage& first = conversation.messages.front();
    std::string content;
    if (first.role == ChatRole::kSystem && !first.content.empty()) {
        content = "# Instructions\n\n" + first.content + "\n\n";
    }
    if (!conversation.tools.empty()) {
        AFD_ASSIGN(const std::string tools, typescript_namespace(conversation.tools));
        content += "# Tools\n\n" + tools;
    }
    if (!content.empty()) render_message("developer", content, prompt);
    return {};
}

// What led to calls is thought. Beside a thought of its own it is what the model announces.
void render_cause(const ChatMessage& message, ChatPrompt& prompt) {
    constexpr std::string_view kThought = "assistant<|channel|>analysis";
    const bool has_thought = !message.reasoning.empty();
    if (has_thought) render_message(kThought, message.reasoning, prompt);
    if (message.content.empty()) return;
    render_message(
        has_thought ? "assistant<|channel|>commentary" : kThought, message.content, prompt);
}

Result<> render_function_calls(const ChatMessage& message, size_t index, ChatPrompt& prompt) {
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        AFD_ASSIGN(const std::string arguments, spaced_arguments(message, index, i));
        prompt.token("<|start|>").text("assistant to=functions.").text(message.tool_calls[i].name);
        prompt.token("<|channel|>").text("commentary json").token("<|message|>").text(arguments);
        prompt.token("<|call|>");
    }
    return {};
}

// The functions of the last calls, by the ids of those. They refer to the conversation.
class CalledFunctions {
  public:
    // REQUIRES: `message` has calls.
    void set(const ChatMessage& message) {
        by_id_.clear();
        for (const ToolCall& call : message.tool_calls) by_id_.emplace(call.id, call.name);
        last_ = message.tool_calls.back().name;
    }
    // The last one, if none has this id.
    std::string_view of_result(const std::string& id) const {
        const auto at = by_id_.find(id);
        return at == by_id_.end() ? last_ : at->second;
    }

  private:
    std::map<std::string_view, std::string_view> by_id_;
    std::string_view last_;
};

void render_function_result(const ChatMessage& message,
                            const CalledFunctions& called,
                            ChatPrompt& prompt) {
    const nlohmann::ordered_json content = message.content;
    prompt.token("<|start|>").text("functions.").text(called.of_result(message.tool_call_id));
    prompt.text(" to=assistant").token("<|channel|>").text("commentary").token("<|message|>");
    prompt.text(spaced_text(content)).token("<|end|>");
}

}  // namespace

Result<ChatPrompt> HarmonyTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_later_systems(conversation, name()));
    AFD_TRY(refuse_results_without_calls(conversation, name()));
    ChatPrompt prompt;
    AFD_TRY(render_system(conversation, prompt));
    AFD_TRY(render_developer(conversation, prompt));
    const int last_answer = last_plain_answer(conversation);
    CalledFunctions called;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kUser) {
            render_message("user", message.content, prompt);
        } else if (message.role == ChatRole::kTool) {
            render_function_result(message, called, prompt);
        } else if (message.role == ChatRole::kAssistant && !message.tool_calls.empty()) {
            if (static_cast<int>(i) > last_answer) render_cause(message, prompt);
            AFD_TRY(render_function_calls(message, i, prompt));
            called.set(message);
        } else if (message.role == ChatRole::kAssistant) {
            render_message("assistant<|channel|>final", message.content, prompt);
        }
    }
    if (conversation.add_generation_prompt) prompt.token("<|start|>").text("assistant");
    return prompt;
}

OutputSyntax HarmonyTemplate::output(const Conversation& conversation) const {
    OutputSyntax syntax{.reasoning = ReasoningSyntax::kChannels};
    if (!conversation.tools.empty()) syntax.tools = ToolSyntax::kHarmony;
    return syntax;
}

}  // namespace afd::model
