// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a client writes in a chat becomes the Generate that it means, in the form of the
// model's template, or a 400 that names the field. Method and oracle: as in
// generation_call_test.cc; the prompt's ids are its bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/http/call/generation_call.h"
#include "model/chat/chatml_template.h"
#include "model/chat/harmony_template.h"
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
    const ApiError format = refusal(R"(,"response_format":{"type":"json_object"})");
    EXPECT_EQ(format.param, "response_format");
    EXPECT_THAT(format.message, HasSubstr("it answers in channels"));
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
