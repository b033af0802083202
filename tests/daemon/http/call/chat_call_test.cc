// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a client writes in a chat becomes the Generate that it means, in the form of the
// model's template, or a 400 that names the field. Method and oracle: as in
// generation_call_test.cc; the prompt's ids are its bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/http/call/generation_call.h"
#include "model/chat/template/chatml_template.h"
#include "model/chat/template/harmony_template.h"
#include "model/chat/template/kimi_template.h"
#include "model/chat/template/qwen_coder_template.h"
#include "tests/daemon/gateway/byte_tokenizer.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChatCallTest : public testing::Test {
  protected:
    ChatCallTest() : tokenizer_(make_byte_tokenizer()) {
        model_.id = "tiny";
        model_.vocab_size = kByteVocabulary;
        model_.context_length = 4096;
        model_.tokenizer = &tokenizer_;
    }

    void use_chatml() {
        model_.chat =
            std::make_shared<model::ChatmlTemplate>("", model::ChatmlThinking::kUnlessAsked, true);
    }
    void use_qwen_coder() { model_.chat = std::make_shared<model::QwenCoderTemplate>(); }
    void use_harmony() { model_.chat = std::make_shared<model::HarmonyTemplate>(); }

    static std::string body_of(const std::string& fields) {
        return R"({"messages":[{"role":"user","content":"Hi"}])" + fields + "}";
    }
    GenerationCall read(const std::string& fields) const {
        ApiResult<GenerationCall> call = read_chat(body_of(fields), model_);
        const auto* error = std::get_if<ApiError>(&call);
        EXPECT_EQ(error, nullptr) << fields << ": " << error->message;
        return error == nullptr ? std::get<GenerationCall>(std::move(call)) : GenerationCall();
    }
    ApiError refusal(const std::string& fields) const {
        ApiResult<GenerationCall> call = read_chat(body_of(fields), model_);
        EXPECT_TRUE(std::holds_alternative<ApiError>(call)) << fields;
        const auto* error = std::get_if<ApiError>(&call);
        return error == nullptr ? ApiError() : *error;
    }
    static std::string prompt_of(const GenerationCall& call) {
        std::string text;
        for (const uint32_t id : call.prompts.at(0).token_ids().ids()) {
            text += static_cast<char>(id);
        }
        return text;
    }

    model::Tokenizer tokenizer_;
    ApiModel model_;
};

// Goal: a turn without a text is a slip, but for an assistant that only called. A switch of another
// template is no reason to refuse a chat.
TEST_F(ChatCallTest, MessagesHaveAContentAndTemplatesTheirOwnSwitches) {
    use_chatml();
    const auto refused = read_chat(R"({"messages":[{"role":"user"}]})", model_);
    ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
    EXPECT_EQ(std::get<ApiError>(refused).message, "messages[0].content is missing");
    EXPECT_EQ(std::get<ApiError>(refused).param, "messages[0].content");
    EXPECT_THAT(read(R"(,"chat_template_kwargs":{"clear_thinking":false})").ignored,
                ElementsAre("chat_template_kwargs.clear_thinking"));
    EXPECT_TRUE(read(R"(,"logprobs":false,"top_logprobs":0)").ignored.empty());
}

TEST_F(ChatCallTest, MessagesBeyondTheContextAreRefusedBeforeTheyAreEncoded) {
    use_chatml();
    const auto call = read_chat(
        R"({"messages":[{"role":"user","content":")" + std::string(5000, 'a') + R"("}]})", model_);
    const auto* error = std::get_if<ApiError>(&call);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, "context_length_exceeded");
    EXPECT_EQ(error->param, "messages");
    EXPECT_THAT(error->message,
                testing::MatchesRegex("the messages have 5[0-9]+ bytes, which are at least [0-9]+ "
                                      "tokens: at most 4096 fit, the context length of the "
                                      "model; send fewer or shorter messages"));
}

// Words of different parts are different words. Oracle: the prompt, whose form vLLM's is, too.
TEST_F(ChatCallTest, PartsOfAMessageAreLines) {
    use_chatml();
    const auto call = read_chat(R"({"messages":[{"role":"user","content":[
        {"type":"text","text":"Read this:"},{"type":"text","text":"Once"},
        {"type":"text","text":""}]}]})",
                                model_);
    ASSERT_TRUE(std::holds_alternative<GenerationCall>(call));
    EXPECT_THAT(prompt_of(std::get<GenerationCall>(call)),
                HasSubstr("user\nRead this:\nOnce\n<|im_end|>"));
}

TEST_F(ChatCallTest, AnAnswerIsATextOfItsOwn) {
    use_chatml();
    EXPECT_TRUE(read("").wish(0).begins_text());
}

// Goal: a format leaves a model its thoughts, unless it is asked for none.
TEST_F(ChatCallTest, AFormatLeavesRoomForThoughts) {
    use_chatml();
    const auto format = [&](const std::string& more) {
        return read(R"(,"response_format":{"type":"json_object"})" + more)
            .prompts.at(0)
            .sampling()
            .response_format();
    };
    EXPECT_TRUE(format("").may_think());
    EXPECT_FALSE(format("").thinks_first());
    EXPECT_FALSE(format(R"(,"chat_template_kwargs":{"enable_thinking":false})").may_think());
}

TEST_F(ChatCallTest, ChannelsComeWithTheirMarks) {
    use_harmony();
    const GenerationCall call = read(R"(,"reasoning_effort":"low")");
    EXPECT_EQ(call.output.reasoning, model::ReasoningSyntax::kChannels);
    EXPECT_TRUE(call.prompts.at(0).keep_special_tokens());
    EXPECT_THAT(prompt_of(call), HasSubstr("\n\nReasoning: low\n\n"));
    EXPECT_THAT(call.ignored, IsEmpty());
    EXPECT_THAT(prompt_of(read(R"(,"chat_template_kwargs":{"reasoning_effort":"high"})")),
                HasSubstr("Reasoning: high"));
    EXPECT_THAT(prompt_of(read("")), HasSubstr("Reasoning: medium"));
    const ApiError effort = refusal(R"(,"reasoning_effort":"much")");
    EXPECT_EQ(effort.status, 400);
    EXPECT_EQ(effort.param, "reasoning_effort");
    EXPECT_THAT(effort.message, HasSubstr("'much': must be low, medium or high"));
}

// Goal: a format is that of the message in `final`, and a thought comes before it.
TEST_F(ChatCallTest, AFormatIsThatOfTheFinalChannel) {
    use_harmony();
    const GenerationCall call = read(R"(,"response_format":{"type":"json_object"})");
    EXPECT_EQ(call.output.reasoning, model::ReasoningSyntax::kFinalChannel);
    EXPECT_TRUE(call.prompts.at(0).keep_special_tokens());
    const ResponseFormat& format = call.prompts.at(0).sampling().response_format();
    EXPECT_TRUE(format.json_object());
    EXPECT_TRUE(format.in_final_channel());
    EXPECT_FALSE(format.thinks_first() || format.may_think());
    const ApiError outside =
        refusal(R"(,"response_format":{"type":"json_object"},"add_generation_prompt":false)");
    EXPECT_EQ(outside.status, 400);
    EXPECT_EQ(outside.param, "add_generation_prompt");
    EXPECT_THAT(outside.message, HasSubstr("leave add_generation_prompt out"));
    use_chatml();
    EXPECT_FALSE(read(R"(,"response_format":{"type":"json_object"})")
                     .prompts.at(0)
                     .sampling()
                     .response_format()
                     .in_final_channel());
}

TEST_F(ChatCallTest, AnEffortThatNobodyAsksForIsIgnored) {
    use_chatml();
    const GenerationCall call = read(R"(,"reasoning_effort":"minimal")");
    EXPECT_THAT(call.ignored, ElementsAre("reasoning_effort"));
    EXPECT_EQ(call.output.reasoning, model::ReasoningSyntax::kTagged);
    EXPECT_FALSE(call.prompts.at(0).keep_special_tokens());
}

// Clients send back what a model said, and some say nothing for the arguments of a function that
// has none.
TEST_F(ChatCallTest, ACallWithBlankArgumentsHasNone) {
    use_chatml();
    for (const char* arguments : {R"("")", R"(" \n")", "null", R"("{}")"}) {
        const std::string body =
            R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,)"
            R"("tool_calls":[{"id":"a","type":"function","function":{"name":"now","arguments":)" +
            std::string(arguments) +
            R"(}}]},{"role":"tool","tool_call_id":"a","content":"12:00"}]})";
        const ApiResult<GenerationCall> call = read_chat(body, model_);
        const auto* error = std::get_if<ApiError>(&call);
        ASSERT_EQ(error, nullptr) << arguments << ": " << error->message;
        EXPECT_THAT(prompt_of(std::get<GenerationCall>(call)),
                    HasSubstr(R"({"name": "now", "arguments": {}})"))
            << arguments;
    }
}

// Goal: what clients of other servers send back of a thought is shown. Oracle: the prompt.
TEST_F(ChatCallTest, AThoughtHasTwoNames) {
    use_chatml();
    const auto prompt_with = [&](const std::string& fields) {
        const auto call = read_chat(R"({"messages":[{"role":"user","content":"Hi"},)"
                                    R"({"role":"assistant","content":"","tool_calls":[{"id":"a",)"
                                    R"("type":"function","function":{"name":"f"}}])" +
                                        fields + R"(},{"role":"tool","content":"1"}]})",
                                    model_);
        const auto* error = std::get_if<ApiError>(&call);
        EXPECT_EQ(error, nullptr) << fields << ": " << error->message;
        if (error != nullptr) return std::string();
        EXPECT_THAT(std::get<GenerationCall>(call).ignored, IsEmpty()) << fields;
        return prompt_of(std::get<GenerationCall>(call));
    };
    const std::string thought = prompt_with(R"(,"reasoning_content":"I see.")");
    EXPECT_THAT(thought, HasSubstr("I see."));
    EXPECT_EQ(prompt_with(R"(,"reasoning":"I see.")"), thought);
    EXPECT_EQ(prompt_with(R"(,"reasoning":"I see.","reasoning_content":null)"), thought);
    EXPECT_EQ(prompt_with(R"(,"reasoning":"It was.","reasoning_content":"I see.")"), thought);
}

const std::string kOneTool =
    R"(,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{}}}])";
const std::string kForced = R"(,"tool_choice":{"type":"function","function":{"name":"f"}})";

// Goal: one call at most, where that is asked for: a forced call is one already, and where the
// model may call the answer ends behind the first.
TEST_F(ChatCallTest, ParallelCallsCanBeForbidden) {
    use_chatml();
    const std::string single = R"(,"parallel_tool_calls":false)";
    EXPECT_TRUE(read(kOneTool + single).ends_behind_call);
    EXPECT_FALSE(read(kOneTool).ends_behind_call);
    EXPECT_FALSE(read(kOneTool + R"(,"parallel_tool_calls":true)").ends_behind_call);
    const GenerationCall forced = read(kOneTool + kForced + single);
    EXPECT_FALSE(forced.ends_behind_call);
    EXPECT_EQ(forced.prompts.at(0).sampling().response_format().tool_call().tools_size(), 1);
    EXPECT_EQ(prompt_of(read(single)), prompt_of(read(""))) << "without tools it says nothing";
}

// Goal: calls that are not JSON are read, by the schemas of the tools, and cannot be forced: the
// refusal says for which template.
TEST_F(ChatCallTest, CallsThatAreNotJsonAreReadAndNotForced) {
    const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)"
                              R"({"type":"object","properties":{"a":{"type":"string"}}}}}])";
    const auto expect_unforced = [&](const std::string& name) {
        for (const std::string& choice : {std::string(R"(,"tool_choice":"required")"), kForced}) {
            const ApiError error = refusal(tools + choice);
            EXPECT_EQ(error.status, 400);
            EXPECT_EQ(error.param, "tool_choice");
            EXPECT_EQ(error.message,
                      "tool_choice: the model's template (" + name +
                          ") has calls of a form that cannot be forced; leave the choice to the "
                          "model, with auto");
        }
    };
    use_qwen_coder();
    const GenerationCall coder = read(tools);
    EXPECT_EQ(coder.output.tools, model::ToolSyntax::kQwenCoder);
    EXPECT_EQ(coder.output.types->json_of("f", "a", "1"), "\"1\"");
    EXPECT_TRUE(coder.prompts.at(0).keep_special_tokens());
    EXPECT_EQ(read(tools + R"(,"tool_choice":"none")").output.tools, model::ToolSyntax::kNone);
    expect_unforced("qwen3_coder");
    use_harmony();
    EXPECT_EQ(read(tools).output.tools, model::ToolSyntax::kHarmony);
    expect_unforced("harmony");
}

TEST_F(ChatCallTest, KimiCanBeMadeToCall) {
    model_.chat = std::make_shared<model::KimiTemplate>("You are Kimi.",
                                                        model::KimiTemplate::Thinking::kNone,
                                                        model::KimiTemplate::Tools::kCompact);
    const GenerationCall call = read(kOneTool + kForced);
    const ToolCallFormat& format = call.prompts.at(0).sampling().response_format().tool_call();
    std::string text;
    for (const auto& part : format.before()) text += part.text();
    text += format.tools(0).name();
    for (const auto& part : format.between()) text += part.text();
    EXPECT_EQ(text,
              "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
              "<|tool_call_argument_begin|>");
}

// Arguments are held to a schema only where the call is forced.
TEST_F(ChatCallTest, ListsWhatArgumentsAreNotHeldTo) {
    use_chatml();
    EXPECT_THAT(read(kOneTool).ignored, ElementsAre("tools[0].function.strict"));
    EXPECT_THAT(read(kOneTool + R"(,"tool_choice":"none")").ignored, IsEmpty());
    EXPECT_THAT(read(kOneTool + kForced).ignored, IsEmpty());
    EXPECT_THAT(read(R"(,"tools":[{"type":"function","function":{"name":"f","parameters":
                     {"properties":{"a":{"type":"string","format":"email"}}}}}])" +
                     kForced)
                    .ignored,
                ElementsAre("tools[0].function.parameters/properties/a/format"));
}

TEST_F(ChatCallTest, ArgumentsOfAForcedCallAreAnObjectWhateverLeadsToIt) {
    use_chatml();
    const auto with_parameters = [](const std::string& parameters) {
        return R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" + parameters +
               "}}]" + kForced;
    };
    for (
        const char* parameters :
        {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}})",
         R"({"anyOf":[{"type":"object"},{"properties":{"a":true}}]})",
         R"({"oneOf":[{"type":"object","properties":{"a":{"const":"x"}},"required":["a"]},)"
         R"({"type":"object","properties":{"a":{"const":"y"}},"required":["a"]}]})",
         R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"object"}}})",
         R"({"type":"object","anyOf":[{"properties":{"a":true}},{"properties":{"b":true}}]})",
         // Choices that do not say that they are objects.
         R"({"type":"object","oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},)"
         R"({"properties":{"k":{"const":"b"}},"required":["k"]}]})",
         R"({"type":"object","anyOf":[{"description":"Any."},{"properties":{"b":true}}]})",
         R"({"type":"object","allOf":[{"additionalProperties":true}]})",
         R"({"anyOf":[{"type":"object","oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},)"
         R"({"properties":{"k":{"const":"b"}},"required":["k"]}]},{"properties":{"b":true}}]})"}) {
        read(with_parameters(parameters));
    }
    for (const char* parameters : {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}})",
                                   R"({"anyOf":[{"type":"object"},{"type":"null"}]})",
                                   R"({"oneOf":[{"type":"object"},{"type":"null"}]})",
                                   R"({"type":"object","anyOf":[{"type":"null"}]})",
                                   R"({"type":"object","anyOf":[{"enum":[null]},{"const":1}]})",
                                   R"({"allOf":[{"type":["object","null"]}]})"}) {
        const ApiError error = refusal(with_parameters(parameters));
        EXPECT_EQ(error.status, 400) << parameters;
        EXPECT_EQ(error.param, "tools") << parameters;
        EXPECT_THAT(error.message, HasSubstr("the arguments of a call are an object"));
    }
}

// Goal: the template's end token is none of the client's: it takes no place in its list, and
// nothing that was asked for.
TEST_F(ChatCallTest, TheTemplatesEndIsNoStopTokenOfTheClient) {
    use_chatml();
    model_.chat_end_ids = {kEndOfText};
    std::string ids = "1";
    for (int i = 1; i < 128; ++i) ids += ",1";
    const GenerationCall call = read(R"(,"stop_token_ids":[)" + ids + "]");
    EXPECT_EQ(call.prompts.at(0).stop_token_ids_size(), 128);
    EXPECT_THAT(call.prompts.at(0).end_token_ids(), ElementsAre(kEndOfText));
}

// Goal: a message that shows the start of what a client sent is text. Oracle: a JSON parser, which
// takes UTF-8 only.
TEST_F(ChatCallTest, WhatRefusalsShowIsCutBetweenCharacters) {
    std::string name = "a";
    for (int i = 0; i < 80; ++i) name += "é";
    use_harmony();
    const auto message_of = [](const ApiError& error) {
        return nlohmann::json::parse(error_json(error))["error"]["message"].get<std::string>();
    };
    const std::string shown = "'" + name.substr(0, 99) + "'";
    EXPECT_THAT(message_of(refusal(R"(,"reasoning_effort":")" + name + "\"")), HasSubstr(shown));
    use_chatml();
    EXPECT_THAT(
        message_of(refusal(kOneTool + R"(,"tool_choice":{"type":"function","function":{"name":")" +
                           name + "\"}}")),
        HasSubstr(shown));
    EXPECT_THAT(message_of(refusal(R"(,"tools":[{"type":"function","function":{"name":")" + name +
                                   R"("}}],"tool_choice":"required")")),
                HasSubstr("'" + name.substr(0, 63) + "'"));
}

// A name that is no text once ended afdd, and with it the requests of all others.
TEST_F(ChatCallTest, AToolWithoutANameIsRefused) {
    use_chatml();
    for (const char* function :
         {"null", "5", "{}", R"({"name":null})", R"({"name":5})", R"({"name":""})"}) {
        for (const char* choice :
             {R"("auto")", R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
            const ApiError error =
                refusal(std::string(R"(,"tools":[{"type":"function","function":)") + function +
                        R"(}],"tool_choice":)" + choice);
            EXPECT_EQ(error.status, 400) << function << choice;
            EXPECT_EQ(error.param, "tools[0].function") << function << choice;
        }
    }
}

}  // namespace
}  // namespace afd::daemon
