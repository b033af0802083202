// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChatTemplate: how a family of models was trained to see a conversation.
//
// The templates are built in; the Jinja text of a checkpoint is read only to choose one, by words
// that are in it. So nothing is interpreted, and what a message contains stays text
// (chat_prompt.h). A checkpoint whose template is none of these is refused, not guessed.
//
// To add one: a class and its source in this folder, a line in choose() of chat_templates.cc, and a
// golden text in tests/model/chat/template/chat_template_test.cc.

#include <memory>
#include <string>
#include <string_view>

#include "model/chat/call/call_form.h"
#include "model/chat/call/parameter_types.h"
#include "model/chat/message/chat_message.h"
#include "model/chat/message/chat_prompt.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/status.h"

namespace afd::model {

// How what the model says is read (output_parser.h).
enum class ReasoningSyntax {
    kNone,
    kTagged,   // <think> ... </think>, or none.
    kStarted,  // The prompt has ended with <think>: it thinks until </think>.
    // Of gpt-oss: messages in channels, of which `analysis` is what it thinks (channel_parser.h).
    kChannels,
    // The same of an answer that has a format: it is the last message, and nothing in it a mark.
    kFinalChannel,
};
inline constexpr ReasoningSyntax kReasoningSyntaxLast = ReasoningSyntax::kFinalChannel;

struct OutputSyntax {
    ReasoningSyntax reasoning = ReasoningSyntax::kNone;
    ToolSyntax tools = ToolSyntax::kNone;
    // Of the tools, where `tools` says that calls have bare values; else null.
    std::shared_ptr<const ParameterTypes> types = {};
    // Behind what it thinks the model says one call and nothing else.
    bool must_call = false;
    // The prompt has ended with </think>: blanks that the model says first belong to that mark.
    bool follows_thought = false;
};

class ChatTemplate {
  public:
    virtual ~ChatTemplate() = default;

    virtual std::string_view name() const = 0;

    // Errors: kInvalidArgument: messages that the family has no form for, naming the message; an
    // effort that it does not know; JSON of tools or arguments that cannot be parsed.
    // kUnimplemented: tools, where the template has no place for them.
    virtual Result<ChatPrompt> render(const Conversation& conversation) const = 0;

    // Of the answer to `conversation`.
    virtual OutputSyntax output(const Conversation& conversation) const = 0;

    // Whether Conversation::effort means something.
    virtual bool takes_effort() const { return false; }

    // The token that ends an answer, which a checkpoint's list of end tokens may not have.
    virtual std::string_view end_token() const = 0;

    // The one that ends it behind a call of a tool, where that is another; empty: it is not.
    virtual std::string_view call_end_token() const { return {}; }
};

// What a checkpoint says about chats.
struct ChatFiles {
    std::string chat_template;  // Jinja; empty: none.
    std::string bos_token;
    std::string eos_token;

    // tokenizer_config.json and chat_template.jinja of a directory; neither has to be there.
    // Errors: kDataLoss: a file is no JSON; those of read_text_file() but kNotFound.
    static Result<ChatFiles> read(const std::string& directory);
};

// The template of a checkpoint. Errors: kNotFound: it has none; kUnimplemented: it is none of those
// that are built in, or the tokenizer lacks a token of it. The message says which there are.
Result<std::unique_ptr<const ChatTemplate>> choose_chat_template(const ChatFiles& files,
                                                                 const Tokenizer& tokenizer);

}  // namespace afd::model
