// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/kimi_template.h"

#include <algorithm>
#include <map>
#include <utility>

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// The ids of all calls, in the model's form, by what the conversation calls them.
class KimiIds {
  public:
    // Of the next call.
    std::string add(const ToolCall& call) {
        const std::string own = "functions." + call.name + ":";
        const bool is_own = call.id.starts_with(own) && call.id.size() > own.size();
        std::string id = is_own ? call.id : own + std::to_string(num_calls_);
        ++num_calls_;
        ids_[call.id] = id;
        return id;
    }
    const std::string& of_result(const std::string& id) const {
        const auto at = ids_.find(id);
        return at == ids_.end() ? id : at->second;
    }

  private:
    std::map<std::string, std::string> ids_;
    size_t num_calls_ = 0;
};

ChatPrompt& start_turn(std::string_view mark, std::string_view role, ChatPrompt& prompt) {
    return prompt.token("<|im_" + std::string(mark) + "|>").text(role).token("<|im_middle|>");
}

// Of any role but the user and the assistant the mark is that of the system.
ChatPrompt& start_turn(ChatRole role, ChatPrompt& prompt) {
    const bool has_mark = role != ChatRole::kTool;
    return start_turn(has_mark ? name_of(role) : "system", name_of(role), prompt);
}

Result<> render_kimi_calls(const ChatMessage& message,
                           size_t index,
                           KimiIds& ids,
                           ChatPrompt& prompt) {
    if (message.tool_calls.empty()) return {};
    prompt.token("<|tool_calls_section_begin|>");
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        AFD_TRY(spaced_arguments(message, index, i));
        const ToolCall& call = message.tool_calls[i];
        prompt.token("<|tool_call_begin|>").text(ids.add(call));
        prompt.token("<|tool_call_argument_begin|>").text(call.arguments);
        prompt.token("<|tool_call_end|>");
    }
    prompt.token("<|tool_calls_section_end|>");
    return {};
}

}  // namespace

KimiTemplate::KimiTemplate(std::string default_system, Thinking thinking, Tools tools)
    : default_system_(std::move(default_system)), thinking_(thinking), tools_(tools) {}

std::string_view KimiTemplate::name() const {
    if (thinking_ == Thinking::kUnlessAsked) return "kimi_k25";
    return thinking_ == Thinking::kOwn ? "kimi_thinking" : "kimi";
}

bool KimiTemplate::is_asked_not_to(const Conversation& conversation) const {
    return thinking_ == Thinking::kUnlessAsked && !conversation.thinking.value_or(true);
}

Result<ChatPrompt> KimiTemplate::render(const Conversation& conversation) const {
    if (tools_ == Tools::kNone) AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    if (!conversation.tools.empty()) AFD_TRY(render_tools(conversation, prompt));
    if (conversation.messages[0].role != ChatRole::kSystem && !default_system_.empty()) {
        start_turn(ChatRole::kSystem, prompt).text(default_system_).token("<|im_end|>");
    }
    const int last_plain = last_plain_answer(conversation);
    const bool is_silent = is_asked_not_to(conversation);
    KimiIds ids;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        start_turn(message.role, prompt);
        if (message.role == ChatRole::kTool) {
            prompt.text("## Return of ").text(ids.of_result(message.tool_call_id)).text("\n");
        } else if (thinking_ != Thinking::kNone && message.role == ChatRole::kAssistant) {
            const bool shows_thought = static_cast<int>(i) > last_plain && !is_silent;
            prompt.token("<think>").text(shows_thought ? message.reasoning : "");
            prompt.token("</think>");
        }
        prompt.text(message.content);
        AFD_TRY(render_kimi_calls(message, i, ids, prompt));
        prompt.token("<|im_end|>");
    }
    if (!conversation.add_generation_prompt) return prompt;
    start_turn(ChatRole::kAssistant, prompt);
    if (thinking_ == Thinking::kUnlessAsked) prompt.token("<think>");
    if (is_silent) prompt.token("</think>");
    return prompt;
}

Result<> KimiTemplate::render_tools(const Conversation& conversation, ChatPrompt& prompt) const {
    std::string all = "[";
    for (size_t i = 0; i < conversation.tools.size(); ++i) {
        const std::string place = fmt::format("tools[{}]", i);
        AFD_ASSIGN(const std::string tool,
                   tools_ == Tools::kCompact ? compact_json(conversation.tools[i], place)
                                             : spaced_json(conversation.tools[i], place));
        if (i > 0) all += tools_ == Tools::kCompact ? "," : ", ";
        all += tool;
    }
    start_turn("system", "tool_declare", prompt).text(all + "]").token("<|im_end|>");
    return {};
}

OutputSyntax KimiTemplate::output(const Conversation& conversation) const {
    OutputSyntax syntax;
    if (thinking_ != Thinking::kNone) syntax.reasoning = ReasoningSyntax::kTagged;
    if (thinking_ == Thinking::kUnlessAsked && conversation.add_generation_prompt) {
        syntax.follows_thought = is_asked_not_to(conversation);
        syntax.reasoning =
            syntax.follows_thought ? ReasoningSyntax::kNone : ReasoningSyntax::kStarted;
    }
    if (!conversation.tools.empty()) syntax.tools = ToolSyntax::kKimi;
    return syntax;
}

}  // namespace afd::model
