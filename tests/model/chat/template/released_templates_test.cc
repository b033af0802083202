// SPDX-License-Identifier: Apache-2.0
//
// Goal: releases whose templates have a word of an older one in them, and another form, get their
// own. Method and oracle: as in chat_template_test.cc; the words are those by which they differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/chat/message/chat_text.h"
#include "tests/model/chat/chat_fixture.h"

namespace afd::model {
namespace {

using testing::HasSubstr;

const Conversation kQuestion{{user("Q")}};
const std::string kThought = "<think>\nOld.\n</think>\n\nA";

ReasoningSyntax reasoning_of(const std::string& jinja, const Conversation& conversation) {
    return chosen(jinja)->output(conversation).reasoning;
}

// The line breaks of a Jinja text may be those of its string literals, or real ones.
TEST(ReleasedTemplates, Qwen3ThinkingBeginsWithinTheThought) {
    for (const std::string& jinja :
         {std::string("'<|im_start|>assistant\\n<think>\\n' <tool_response>"),
          std::string("'<|im_start|>assistant\n<think>\n'")}) {
        EXPECT_EQ(chosen(jinja)->name(), "qwen3_thinking");
        EXPECT_EQ(text_of(jinja, {{user("Q1"), assistant(kThought), user("Q2")}}),
                  "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
                  "<|im_start|>user\nQ2<|im_end|>\n<|im_start|>assistant\n<think>\n");
        EXPECT_EQ(reasoning_of(jinja, kQuestion), ReasoningSyntax::kStarted);
        EXPECT_EQ(reasoning_of(jinja, {{user("Q")}, {}, false}), ReasoningSyntax::kTagged);
    }
    EXPECT_EQ(reasoning_of("<|im_start|>", kQuestion), ReasoningSyntax::kNone);
}

// The form that it has now: tool_templates_test.cc.
TEST(ReleasedTemplates, EarlyQwen3CoderHasNoToolsHere) {
    const std::string jinja = "<|im_start|> <tool_response> <function=example>";
    EXPECT_EQ(text_of(jinja, kQuestion), "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_THAT(chosen(jinja)->render({{user("Q")}, {kTool}}).error().message,
                HasSubstr("(chatml) has no place for tools"));
}

TEST(ReleasedTemplates, ErnieIsNoQwen) {
    const auto found =
        choose_chat_template({"<|im_start|> <global_setting>", "", ""}, make_tokenizer());
    EXPECT_THAT(found.error().message, HasSubstr("none of those that are built in"));
}

TEST(ReleasedTemplates, DeepSeekR1OfMay2025BeginsItsThoughtItself) {
    const std::string jinja = "'<｜Assistant｜>' content.split('</think>')";
    EXPECT_EQ(text_of(jinja, {{user("Q1"), assistant("Old.</think>A"), user("Q2")}}),
              "<｜begin▁of▁sentence｜><｜User｜>Q1<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>Q2"
              "<｜Assistant｜>");
    EXPECT_EQ(reasoning_of(jinja, kQuestion), ReasoningSyntax::kTagged);
    EXPECT_EQ(reasoning_of("'<｜Assistant｜><think>'", kQuestion), ReasoningSyntax::kStarted);
    EXPECT_EQ(reasoning_of("'<｜Assistant｜>'", kQuestion), ReasoningSyntax::kNone);
}

TEST(ReleasedTemplates, Glm47) {
    const std::string jinja = "[gMASK] clear_thinking";
    EXPECT_EQ(text_of(jinja, kTalk),
              "[gMASK]<sop><|system|>Be brief.<|user|>Hi<|assistant|></think>Hello!<|user|>Why?"
              "<|assistant|><think>");
    EXPECT_EQ(text_of(jinja, {{user("Hi")}, {}, true, false}),
              "[gMASK]<sop><|user|>Hi<|assistant|></think>");
    EXPECT_EQ(text_of(jinja, {{user("Hi"), assistant(kThought)}, {}, false}),
              "[gMASK]<sop><|user|>Hi<|assistant|><think>Old.</think>A");
    EXPECT_EQ(reasoning_of(jinja, kQuestion), ReasoningSyntax::kStarted);
    EXPECT_EQ(reasoning_of(jinja, {{user("Q")}, {}, true, false}), ReasoningSyntax::kNone);
    EXPECT_EQ(reasoning_of("[gMASK]", kQuestion), ReasoningSyntax::kTagged);
}

// Goal: the parser knows of a thought that the prompt has ended with. Oracle: the prompt.
TEST(ReleasedTemplates, TellWhetherThePromptEndsBehindAThought) {
    int num_behind = 0;
    for (const char* jinja : {"[gMASK]",
                              "[gMASK] clear_thinking",
                              "<|im_start|> enable_thinking",
                              "<|im_start|>",
                              "'<|im_start|>assistant\\n<think>\\n'",
                              "'<｜Assistant｜>' thinking",
                              "'<｜Assistant｜><think>'",
                              "<|im_middle|> <think></think>",
                              "<|im_middle|> <think></think> thinking is false",
                              "[INST] [/INST]"}) {
        for (const bool thinks : {false, true}) {
            for (const bool is_asked : {false, true}) {
                const Conversation conversation{{user("Q")}, {}, is_asked, thinks};
                const std::string prompt = text_of(jinja, conversation);
                const bool is_behind = strip_right(prompt).ends_with("</think>");
                EXPECT_EQ(chosen(jinja)->output(conversation).follows_thought, is_behind) << prompt;
                num_behind += is_behind ? 1 : 0;
            }
        }
    }
    EXPECT_EQ(num_behind, 5);
}

// [INST] is a token there, and as text in Mixtral-8x7B. Oracle: the ids.
TEST(ReleasedTemplates, Mixtral8x22B) {
    const std::string jinja = "'[INST] ' system_message '[/INST]'";
    EXPECT_EQ(text_of(jinja, kTalk),
              "<s>[INST] Hi[/INST] Hello!</s>[INST] Be brief.\n\nWhy?[/INST]");
    EXPECT_EQ(text_of("'[INST]' '[/INST]'", {{user("Hi")}}), "<s>[INST]Hi[/INST]");
    EXPECT_THAT(chosen("'[INST]' '[/INST]'")->render(kTalk).error().message,
                HasSubstr("messages[0] is of the system: in the chat template of this model "
                          "(mistral_v3)"));
    Tokenizer tokenizer = make_tokenizer();
    const auto id = [&tokenizer](const char* text) { return *tokenizer.added_token(text); };
    const std::vector<uint32_t> ids = {id("<s>"), id("[INST]"), ' ', 'Q', id("[/INST]")};
    EXPECT_EQ(chosen(jinja)->render(kQuestion).value().encode(tokenizer).value(), ids);
    const auto as_text = chosen("'[INST] ' ' [/INST]'")->render(kQuestion).value();
    EXPECT_EQ(as_text.encode(tokenizer).value().size(), 1 + std::string("[INST] Q [/INST]").size());
}

TEST(ReleasedTemplates, KimiThinkingSeesOldAnswersBehindEmptyThoughts) {
    const std::string jinja = "<|im_middle|> <think></think>";
    EXPECT_EQ(text_of(jinja, kTalk),
              "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>Hi"
              "<|im_end|><|im_assistant|>assistant<|im_middle|><think></think>Hello!<|im_end|>"
              "<|im_user|>user<|im_middle|>Why?<|im_end|><|im_assistant|>assistant<|im_middle|>");
    EXPECT_EQ(reasoning_of(jinja, kQuestion), ReasoningSyntax::kTagged);
    EXPECT_EQ(reasoning_of("<|im_middle|>", kQuestion), ReasoningSyntax::kNone);
}

const std::string kKimiK25 =
    "<|im_middle|> <think></think> {%- if add_generation_prompt -%} {%- if thinking is defined and "
    "thinking is false -%} <think></think> {%- else -%} <think>";

TEST(ReleasedTemplates, KimiK25BeginsWithinTheThoughtUnlessAskedNotTo) {
    EXPECT_EQ(chosen(kKimiK25)->name(), "kimi_k25");
    const std::string start = "<|im_user|>user<|im_middle|>Q<|im_end|>";
    const std::string answer = "<|im_assistant|>assistant<|im_middle|>";
    EXPECT_EQ(text_of(kKimiK25, kQuestion), start + answer + "<think>");
    EXPECT_EQ(text_of(kKimiK25, {{user("Q")}, {}, true, false}),
              start + answer + "<think></think>");
    EXPECT_EQ(text_of(kKimiK25, {{user("Q")}, {}, false, false}), start);
    const Conversation off{{user("Q")}, {}, true, false};
    EXPECT_EQ(reasoning_of(kKimiK25, kQuestion), ReasoningSyntax::kStarted);
    EXPECT_EQ(reasoning_of(kKimiK25, {{user("Q")}, {}, false}), ReasoningSyntax::kTagged);
    EXPECT_EQ(reasoning_of(kKimiK25, off), ReasoningSyntax::kNone);
    EXPECT_TRUE(chosen(kKimiK25)->output(off).follows_thought);
    EXPECT_THAT(chosen(kKimiK25)->render({{user("Q")}, {kTool}}).error().message,
                HasSubstr("(kimi_k25) has no place for tools"));
}

// Thoughts of earlier answers are empty, those since the last one stay if it thinks.
TEST(ReleasedTemplates, KimiK25KeepsTheThoughtsOfThisAnswerOnly) {
    ChatMessage old = assistant("A1");
    old.reasoning = "Old.";
    ChatMessage call = calling("", {{"functions.f:0", "f", "{}"}});
    call.reasoning = "Hm.";
    Conversation talk{{user("Q1"), old, user("Q2"), call, result("r")}};
    const std::string before = "<|im_assistant|>assistant<|im_middle|><think></think>A1<|im_end|>";
    const std::string calls = "</think><|tool_calls_section_begin|>";
    const std::string jinja = kKimiK25 + "<|tool_calls_section_begin|>";
    EXPECT_THAT(text_of(jinja, talk), HasSubstr(before));
    EXPECT_THAT(text_of(jinja, talk), HasSubstr("<think>Hm." + calls));
    talk.thinking = false;
    EXPECT_THAT(text_of(jinja, talk), HasSubstr("<think>" + calls));
}

// One that ends within the thought and cannot be asked not to keeps all earlier thoughts.
TEST(ReleasedTemplates, KimiK27CodeIsNoKimiK25) {
    const auto found = choose_chat_template(
        {"<|im_middle|> {%- if add_generation_prompt -%} <|im_middle|><think>", "", ""},
        make_tokenizer());
    ASSERT_FALSE(found.ok());
    EXPECT_THAT(found.error().message, HasSubstr("none of those that are built in"));
}

const std::string kHarmony = "\"<|start|>\" \"<|channel|>\"";

std::string harmony_start(const std::string& effort) {
    return "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
           "Knowledge cutoff: 2024-06\nCurrent date: 2026-11-27\n\nReasoning: " +
           effort +
           "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every "
           "message.<|end|>";
}

TEST(ReleasedTemplates, Harmony) {
    Conversation talk = kTalk;
    talk.date = "2026-11-27";
    EXPECT_EQ(text_of(kHarmony, talk),
              harmony_start("medium") +
                  "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|><|start|>user"
                  "<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|end|>"
                  "<|start|>user<|message|>Why?<|end|><|start|>assistant");
    talk = {{user("Hi")}, {}, false};
    talk.date = "2026-11-27";
    talk.effort = "high";
    EXPECT_EQ(text_of(kHarmony, talk), harmony_start("high") + "<|start|>user<|message|>Hi<|end|>");
    EXPECT_EQ(reasoning_of(kHarmony, kQuestion), ReasoningSyntax::kChannels);
    // Without a day that of today, which has as many characters.
    EXPECT_EQ(text_of(kHarmony, {{user("Hi")}, {}, false}).size(),
              text_of(kHarmony, talk).size() + std::string("medium").size() - talk.effort.size());
}

TEST(ReleasedTemplates, HarmonyRefusesWhatItHasNoFormFor) {
    Conversation talk = kQuestion;
    talk.effort = "much";
    EXPECT_EQ(chosen(kHarmony)->render(talk).error().message,
              "reasoning_effort = 'much': must be low, medium or high");
    EXPECT_THAT(chosen(kHarmony)->render({{user("Q"), system("S")}}).error().message,
                HasSubstr("messages[1] is of the system: in the chat template of this model "
                          "(harmony) only the first may be"));
}

TEST(ReleasedTemplates, MiniMax) {
    const std::string jinja =
        "']~b]user' {%- set model_identity = \"You are a helpful assistant. Your name is M.\" -%}";
    EXPECT_EQ(text_of(jinja, {{user("Q1"), assistant(kThought), user("Q2")}}),
              "]~!b[]~b]system\nYou are a helpful assistant. Your name is "
              "M.[e~[\n]~b]user\nQ1[e~[\n]~b]ai\nA[e~[\n"
              "]~b]user\nQ2[e~[\n]~b]ai\n<think>\n");
    EXPECT_EQ(
        text_of(jinja, {{system("S"), user("Q"), assistant(kThought)}, {}, false}),
        "]~!b[]~b]system\nS[e~[\n]~b]user\nQ[e~[\n]~b]ai\n<think>\nOld.\n</think>\n\nA[e~[\n");
    EXPECT_EQ(reasoning_of(jinja, kQuestion), ReasoningSyntax::kStarted);
    const auto nameless = choose_chat_template({"]~b]", "", ""}, make_tokenizer());
    EXPECT_THAT(nameless.error().message, HasSubstr("none of those that are built in"));
}

TEST(ReleasedTemplates, Dots) {
    EXPECT_EQ(text_of("<|endofuserprompt|>", kTalk),
              "<|system|>Be brief.<|endofsystem|><|userprompt|>Hi<|endofuserprompt|><|response|>"
              "Hello!<|endofresponse|><|userprompt|>Why?<|endofuserprompt|><|response|>");
    EXPECT_EQ(text_of("<|endofuserprompt|> You are a helpful assistant.", {{user("Q")}, {}, false}),
              "<|system|>You are a helpful assistant.<|endofsystem|><|userprompt|>Q"
              "<|endofuserprompt|>");
}

// The maker's message is the checkpoint's own: it is read from the Jinja text, and nowhere else.
TEST(ReleasedTemplates, GigaChat) {
    const std::string jinja =
        "role_sep=\"<|role_sep|>\\n\" {%- set DEVSYSTEM -%}\n<a>\nBe good.\n{%- endset -%}";
    EXPECT_EQ(
        text_of(jinja, kTalk),
        "<｜begin▁of▁sentence｜>developer system<|role_sep|>\n<a>\nBe good.<|message_sep|>\n\n"
        "system<|role_sep|>\nBe brief.<|message_sep|>\n\nuser<|role_sep|>\nHi<|message_sep|>\n\n"
        "assistant<|role_sep|>\nHello!<|message_sep|>\n\nuser<|role_sep|>\nWhy?<|message_sep|>"
        "\n\nassistant<|role_sep|>\n");
    const auto without = choose_chat_template({"<|role_sep|>", "", ""}, make_tokenizer());
    EXPECT_THAT(without.error().message, HasSubstr("none of those that are built in"));
}

}  // namespace
}  // namespace afd::model
