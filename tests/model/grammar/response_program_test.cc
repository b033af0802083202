// SPDX-License-Identifier: Apache-2.0
//
// Response formats as programs. Oracle: texts that they must and must not allow.
#include "model/grammar/response_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "model/chat/message/chat_json.h"
#include "model/chat/output_parser.h"
#include "model/grammar/schema/schema_reader.h"
#include "model/json/ordered_json.h"
#include "proto/sampling.pb.h"
#include "tests/model/grammar/grammar_texts.h"

namespace afd::model {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ResponseFormat of_schema(const std::string& schema) {
    ResponseFormat format;
    format.set_json_schema(schema);
    return format;
}

std::string refusal_of(const ResponseFormat& format) {
    const auto program = response_program(format);
    if (program.ok()) return "accepted";
    EXPECT_EQ(program.error().code, Code::kInvalidArgument);
    return program.error().message;
}

TEST(ResponseProgram, JsonObjectIsAnyObject) {
    ResponseFormat format;
    format.set_json_object(true);
    const auto program = response_program(format).value();
    EXPECT_TRUE(allows(program, R"({"a": [1, {"b": null}]})"));
    EXPECT_FALSE(allows(program, "[1]"));
    EXPECT_FALSE(allows(program, R"({"a": 1} )"));
}

// Goal: the tools of a request share what may be looked at to tell choices apart. Method: a schema
// that takes nearly half of it, alone and as the parameters of several tools.
TEST(ResponseProgram, ToolsTogetherTakeNoMoreLooksThanOneSchema) {
    std::string schema = R"({"type": "object", "properties": {"p": {"oneOf": [{"$ref":
        "#/$defs/d6"}, {"type": "null"}]}}, "$defs": {"d0": {"type": "integer"})";
    for (int i = 1; i <= 6; ++i) {
        schema += ", \"d" + std::to_string(i) + "\": {\"anyOf\": [";
        for (int k = 0; k < 11; ++k) {
            schema += (k == 0 ? "" : ", ");
            schema += "{\"$ref\": \"#/$defs/d" + std::to_string(i - 1) + "\"}";
        }
        schema += "]}";
    }
    schema += "}}";
    EXPECT_EQ(refusal_of(of_schema(schema)), "accepted");
    ResponseFormat format;
    const auto add_tool = [&](const std::string& name) {
        ToolCallFormat::Tool& tool = *format.mutable_tool_call()->add_tools();
        tool.set_name(name);
        tool.set_parameters(schema);
    };
    add_tool("a");
    EXPECT_EQ(refusal_of(format), "accepted");
    for (const char* name : {"b", "c", "d"}) add_tool(name);
    EXPECT_THAT(refusal_of(format), HasSubstr("oneOf"));
}

// Goal: what a client names is said in one line. Method: a line break in the name of a property.
TEST(ResponseProgram, ARefusalIsOneLine) {
    for (const char* schema :
         {R"({"type": "object", "properties": {"a\nb": {"pattern": "x"}}})",
          R"({"type": "object", "properties": {"a\nb": {"$ref": "#"}}, "required": ["a\nb"]})",
          R"({"$ref": "#/$defs/d", "$defs": {"d": {"type": "object", "properties":
              {"a\nb": {"$ref": "#/$defs/d"}}, "required": ["a\nb"]}}})"}) {
        const std::string refusal = refusal_of(of_schema(schema));
        EXPECT_THAT(refusal, StartsWith("response_format is refused: ")) << schema;
        EXPECT_EQ(refusal.find('\n'), std::string::npos) << refusal;
    }
}

TEST(ResponseProgram, JsonSchemaIsThatSchema) {
    const auto program = response_program(of_schema(R"({"enum": ["yes", "no"]})")).value();
    EXPECT_TRUE(allows(program, "\"yes\""));
    EXPECT_FALSE(allows(program, "\"maybe\""));
}

// Goal: a thought is any text to the first </think>; the answer follows it, and nothing but the
// answer. Method: thoughts with what looks like the mark and is not.
TEST(ResponseProgram, AThoughtComesBeforeTheAnswer) {
    ResponseFormat format = of_schema(R"({"type": "integer"})");
    format.set_thinks_first(true);
    const auto program = response_program(format).value();
    for (const char* thought :
         {"", "so", "a < b </thin </</thi<</think", "{\"x\": 1}", "\n\n日本"}) {
        EXPECT_TRUE(allows(program, std::string(thought) + "</think>\n\n12")) << thought;
        EXPECT_FALSE(allows(program, std::string(thought) + "</think>x")) << thought;
        EXPECT_FALSE(allows(program, thought)) << thought;
    }
    EXPECT_FALSE(allows(program, "a</think>b</think>12")) << "the first mark ends the thought";
    for (const char* thought : {"so", "a <", "a </thi"}) {
        EXPECT_TRUE(allows(program, std::string(thought) + "\xff</think>12")) << "a special token";
    }
    EXPECT_FALSE(allows(program, "so\xff<think>12"));
    EXPECT_FALSE(allows(program, "</think>\n\n\n12"));
}

// Goal: a model that may think writes a thought in front of the answer, or none.
TEST(ResponseProgram, AThoughtMayComeBeforeTheAnswer) {
    ResponseFormat format = of_schema(R"({"type": "integer"})");
    format.set_may_think(true);
    const auto program = response_program(format).value();
    EXPECT_TRUE(allows(program, "12"));
    EXPECT_TRUE(allows(program, "<think>\nso\n</think>\n\n12"));
    EXPECT_TRUE(allows(program, "\xff<think>so\xff</think>12"));
    EXPECT_FALSE(allows(program, "so</think>12"));
    EXPECT_FALSE(allows(program, "<think>12"));
    EXPECT_FALSE(allows(program, "\n12"));
}

const std::string kFinal = "<|channel|>final<|message|>";

std::string thought_of(const std::string& text) {
    return "<|channel|>analysis<|message|>" + text + "<|end|><|start|>assistant";
}

// With the special tokens instead of their texts.
std::string with_tokens(std::string text) {
    for (size_t at = 0; (at = text.find("<|", at)) != std::string::npos; at += 3) {
        text.insert(at, 1, VocabularyTrie::kMark);
    }
    return text;
}

std::shared_ptr<const ByteProgram> of_final_channel(const std::string& schema) {
    ResponseFormat format = of_schema(schema);
    format.set_in_final_channel(true);
    return response_program(format).value();
}

// Goal: gpt-oss thinks, in any number of messages, and answers in `final`; nothing else. Method:
// thoughts with what looks like a mark and is not, and those with one that would end them.
TEST(ResponseProgram, TheAnswerMayBeTheMessageInTheFinalChannel) {
    const auto program = of_final_channel(R"({"type": "integer"})");
    EXPECT_TRUE(allows(program, kFinal + "12"));
    EXPECT_TRUE(allows(program, with_tokens(kFinal) + "12"));
    for (const char* thought :
         {"", "so", "a <| b |> <|en <|end| <<|channel", "{\"x\": 1}<|message|>", "\n日本"}) {
        const std::string text = thought_of(thought);
        EXPECT_TRUE(allows(program, text + kFinal + "12")) << thought;
        EXPECT_TRUE(allows(program, text + thought_of("x") + kFinal + "12")) << thought;
        EXPECT_FALSE(allows(program, text + kFinal)) << thought;
        EXPECT_FALSE(allows(program, text + "12")) << thought;
    }
    EXPECT_TRUE(allows(program, with_tokens(thought_of("a <") + kFinal) + "12"));
    for (const char* mark : {"<|call|>", "<|return|>", "<|start|>", "<|channel|>", "<|end|>"}) {
        EXPECT_FALSE(allows(program, thought_of(mark) + kFinal + "12")) << mark;
        EXPECT_FALSE(allows(program, thought_of(with_tokens(mark)) + kFinal + "12")) << mark;
        EXPECT_FALSE(allows(program, kFinal + "12" + with_tokens(mark))) << mark;
    }
    for (const char* other : {"12",
                              "so",
                              "final<|message|>12",
                              "<|channel|>commentary<|message|>12",
                              "<|channel|>final to=functions.f<|message|>12",
                              "<|channel|>final<|message|> 12",
                              "<|start|>assistant<|channel|>final<|message|>12"}) {
        EXPECT_FALSE(allows(program, other)) << other;
    }
}

// What is said of all content, and of all that was thought.
std::pair<std::string, std::string> said_and_thought(const std::string& text) {
    OutputParser parser({.reasoning = ReasoningSyntax::kFinalChannel});
    std::pair<std::string, std::string> all;
    for (const bool is_end : {false, true}) {
        for (const ChatEvent& event : is_end ? parser.finish() : parser.append(text)) {
            (event.kind == ChatEvent::Kind::kContent ? all.first : all.second) += event.text;
        }
    }
    return all;
}

// Goal: whatever the model draws, what a client reads is valid. Method: random texts of a
// vocabulary of marks, as tokens and as texts, and pieces of them. Oracle: a JSON parser; and the
// tokens that may come first.
TEST(ResponseProgram, WhatIsReadOfTheFinalChannelIsTheAnswer) {
    std::vector<std::string> tokens = {"",
                                       "<",
                                       "|",
                                       ">",
                                       "<|",
                                       "|>",
                                       "<<|",
                                       "end",
                                       "b",
                                       "start",
                                       "channel",
                                       "message",
                                       "\"",
                                       "final",
                                       "analysis",
                                       "assistant"};
    for (const char* mark :
         {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|return|>", "<|call|>"}) {
        tokens.push_back(with_tokens(mark));
        tokens.emplace_back(mark);
    }
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto program = of_final_channel(R"({"type": "string"})");
    TokenConstraint at_start(program, vocabulary, {0});
    const auto first = at_start.allowed();
    for (uint32_t id = 0; id < tokens.size(); ++id) {
        const bool may_begin = std::string("\xff<|channel|>").starts_with(tokens[id]) ||
                               std::string("<|channel|>").starts_with(tokens[id]);
        EXPECT_EQ(TokenConstraint::is_set(first, id), may_begin && id != 0) << tokens[id];
    }
    std::mt19937 random(1);
    int num_ended = 0;
    int num_thought = 0;
    for (int i = 0; i < 100; ++i) {
        TokenConstraint constraint(program, vocabulary, {0});
        std::string text = random_text(constraint, tokens, random, 1000);
        if (text.empty()) continue;
        std::erase(text, VocabularyTrie::kMark);
        const auto [said, thought] = said_and_thought(text);
        EXPECT_EQ(text.substr(text.size() - said.size()), said);
        EXPECT_TRUE(parse_ordered_json(said, "said").ok()) << text;
        ++num_ended;
        if (!thought.empty()) ++num_thought;
    }
    EXPECT_GT(num_ended, 50);
    EXPECT_GT(num_thought, 10);
}

ResponseFormat of_call() {
    ResponseFormat format;
    ToolCallFormat& call = *format.mutable_tool_call();
    call.add_before()->set_text("<call>");
    call.mutable_before(0)->set_is_mark(true);
    call.add_before()->set_text("\n");
    call.add_between()->set_text(": ");
    call.add_behind()->set_text("</call>");
    call.mutable_behind(0)->set_is_mark(true);
    for (const char* name : {"say", "say_it"}) call.add_tools()->set_name(name);
    call.mutable_tools(0)->set_parameters(R"({"type": "object"})");
    call.mutable_tools(1)->set_parameters(
        R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})");
    return format;
}

// Goal: a call has the form of the model and arguments of its tool. A mark is the special token, or
// its text.
TEST(ResponseProgram, AToolCallHasItsFormAndItsArguments) {
    const auto program = response_program(of_call()).value();
    EXPECT_TRUE(allows(program, R"(<call>
say: {"x": []}</call>)"));
    EXPECT_TRUE(allows(program, "\xff<call>\nsay_it: {\"a\": 1}\xff</call>"));
    EXPECT_TRUE(allows(program, "\xff<call>\nsay_it: {\"a\": 1}</call>"));
    EXPECT_FALSE(allows(program, "<call>\nsay_it: {\"b\": 1}</call>"));
    EXPECT_FALSE(allows(program, "<call>\nshout: {}</call>"));
    EXPECT_FALSE(allows(program, "<call>\nsay: 1</call>"));
    EXPECT_FALSE(allows(program, "<call>\nsay: {\"\xff<call>\": 1}</call>"));
}

// Goal: a function without parameters gets no arguments. Oracle: OpenAI's reference ("omitting
// parameters defines a function with an empty parameter list").
TEST(ResponseProgram, AFunctionWithoutParametersGetsNone) {
    ResponseFormat format = of_call();
    format.mutable_tool_call()->mutable_tools(0)->clear_parameters();
    const auto program = response_program(format).value();
    EXPECT_TRUE(allows(program, "<call>\nsay: {}</call>"));
    EXPECT_FALSE(allows(program, "<call>\nsay: {\"a\": 1}</call>"));
}

// Goal: a call that the model may write can be read. Oracle: who reads it (chat_json.h), for forms
// in which the arguments stand for themselves and those in which they are within the call's JSON.
TEST(ResponseProgram, ArgumentsNestAsDeepAsTheyAreRead) {
    GrammarAutomaton automaton(response_program(of_call()).value());
    const auto arguments = [](size_t depth) {
        return R"({"": )" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
    };
    size_t depth = 1;
    while (allows(automaton, "<call>\nsay: " + arguments(depth + 1) + "</call>")) ++depth;
    EXPECT_EQ(depth, 63u);
    EXPECT_TRUE(call_arguments(arguments(depth)).ok());
    EXPECT_TRUE(json_call(R"({"name": "say", "arguments": )" + arguments(depth) + "}").ok());
    EXPECT_FALSE(json_call(R"({"name": "say", "arguments": )" + arguments(depth + 1) + "}").ok());
}

TEST(ResponseProgram, RefusalsOfCallsNameTheTool) {
    ResponseFormat format = of_call();
    format.mutable_tool_call()->mutable_tools(1)->set_parameters(R"({"not": {}})");
    EXPECT_THAT(refusal_of(format),
                StartsWith("the parameters of say_it are refused: json_schema: #: \"not\" is not"));
    format.mutable_tool_call()->mutable_tools(1)->set_name("a\"b");
    EXPECT_THAT(refusal_of(format), StartsWith("response_format has a tool 'a\"b': a name"));
    format.mutable_tool_call()->clear_tools();
    EXPECT_EQ(refusal_of(format), "response_format has 0 tools: it must have 1 to 128");
}

// Goal: the arguments of a call are an object, whatever leads to it. Oracle: the schema.
TEST(ResponseProgram, ArgumentsAreAnObject) {
    const auto refusal_with = [](const std::string& parameters) {
        ResponseFormat format = of_call();
        format.mutable_tool_call()->mutable_tools(0)->set_parameters(parameters);
        return refusal_of(format);
    };
    for (const char* parameters :
         {R"({"type": "object"})",
          R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}})",
          R"({"anyOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": true}}],
              "$defs": {"a": {"properties": {"c": true}}}})",
          R"({"enum": [{"a": 1}, {}]})"}) {
        EXPECT_EQ(refusal_with(parameters), "accepted") << parameters;
    }
    for (const char* parameters : {"true",
                                   R"({"type": "array"})",
                                   R"({"type": ["object", "null"]})",
                                   R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}})",
                                   R"({"anyOf": [{"type": "object"}, {"type": "string"}]})",
                                   R"({"enum": [{"a": 1}, "a"]})"}) {
        EXPECT_EQ(refusal_with(parameters),
                  "the parameters of say are refused: json_schema: #: the arguments of a call are "
                  "an object, and this schema allows other values")
            << parameters;
    }
}

// Goal: bytes that are no text cost their own request, and are not sent back. Oracle: the refusal,
// which is text.
TEST(ResponseProgram, WhatIsNotUtf8IsRefusedByItsPlace) {
    EXPECT_EQ(refusal_of(of_schema("{\"title\": \"\xff\"}")),
              "response_format is refused: json_schema is not valid JSON");
    ResponseFormat format = of_call();
    format.mutable_tool_call()->mutable_tools(1)->set_name("a\xff");
    EXPECT_EQ(refusal_of(format), "response_format has a tool whose name is not UTF-8");
    ResponseFormat before = of_call();
    before.mutable_tool_call()->mutable_before(1)->set_text("\xff<call>");
    ResponseFormat between = of_call();
    between.mutable_tool_call()->mutable_between(0)->set_text("\xff");
    ResponseFormat behind = of_call();
    behind.mutable_tool_call()->mutable_behind(0)->set_text("\xc3");
    for (const ResponseFormat& bad : {before, between, behind}) {
        EXPECT_EQ(refusal_of(bad), "response_format has a part of a tool_call that is not UTF-8");
    }
    format = of_call();
    std::string name = "a";
    for (int i = 0; i < 40; ++i) name += "é";
    format.mutable_tool_call()->mutable_tools(1)->set_name(name);
    EXPECT_THAT(refusal_of(format),
                StartsWith("response_format has a tool '" + name.substr(0, 63) + "': a name"));
}

TEST(ResponseProgram, RefusalsNameTheFieldAndTheKeyword) {
    EXPECT_EQ(refusal_of({}),
              "response_format is empty: it must be json_object, a json_schema or a tool_call");
    ResponseFormat format;
    format.set_json_object(false);
    EXPECT_THAT(refusal_of(format), StartsWith("response_format is empty"));
    for (const char* keyword : {"pattern",
                                "not",
                                "multipleOf",
                                "uniqueItems",
                                "patternProperties",
                                "propertyNames",
                                "minProperties",
                                "if",
                                "contains",
                                "$dynamicRef"}) {
        const std::string schema =
            R"({"type": "object", "properties": {"a": {")" + std::string(keyword) + R"(": 1}}})";
        EXPECT_THAT(refusal_of(of_schema(schema)),
                    StartsWith("response_format is refused: json_schema: #/properties/a: \"" +
                               std::string(keyword) + "\" is not supported; known are "));
    }
    EXPECT_THAT(refusal_of(of_schema(std::string(kSchemaBytesMax + 1, ' '))),
                HasSubstr("it has 65537 bytes; at most 65536"));
    EXPECT_THAT(refusal_of(of_schema("{")), HasSubstr("json_schema is not valid JSON"));
    const std::string deep = R"({"const": )" + std::string(30000, '[') + std::string(30000, ']');
    EXPECT_THAT(refusal_of(of_schema(deep + "}")),
                HasSubstr("json_schema: nested deeper than 64 levels"));
    EXPECT_EQ(refusal_of(of_schema("{}")), "accepted");
}

// Over the socket a schema has the limits that it has over HTTP (generation_call_test.cc).
TEST(ResponseProgram, SchemasHaveTheLimitsOfOrderedJson) {
    std::string many = R"("m0":1)";
    for (int i = 1; i <= 512; ++i) many += ",\"m" + std::to_string(i) + "\":1";
    EXPECT_EQ(refusal_of(of_schema("{\"enum\":[{" + many + "}]}")),
              "response_format is refused: json_schema: an object has more than 512 members");
}

// Goal: a schema that is as large as it may be is judged in bounded memory, whatever it asks for.
// Method: shapes that make many rules, many choices, and many states at once. Oracle: it is refused
// or a text can begin.
TEST(ResponseProgram, LargeSchemasAreJudged) {
    std::string choices = R"({"anyOf": [{"const": 0})";
    for (int i = 1; choices.size() < kSchemaBytesMax - 40; ++i) {
        choices += R"(,{"const": "a)" + std::to_string(i) + "\"}";
    }
    std::string members = R"({"properties": {"m0": true)";
    for (int i = 1; members.size() < kSchemaBytesMax - 40; ++i) {
        members += ",\"m" + std::to_string(i) + "\": true";
    }
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    for (const std::string& schema : {choices + "]}",
                                      members + "}}",
                                      std::string(R"({"maxItems": 30000})"),
                                      std::string(R"({"type": "string", "maxLength": 90000})")}) {
        const auto program = response_program(of_schema(schema));
        if (!program.ok()) {
            EXPECT_THAT(program.error().message, StartsWith("response_format is refused: "));
            continue;
        }
        TokenConstraint constraint(program.value(), vocabulary, {0});
        std::mt19937 random(1);
        EXPECT_NE(random_text(constraint, tokens, random, 60), "x");
    }
}

}  // namespace
}  // namespace afd::model
