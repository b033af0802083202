// SPDX-License-Identifier: Apache-2.0
//
// The rules of JSON as a machine. Oracle: nlohmann's parser.
#include "model/grammar/schema/json_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/grammar/schema/schema_program.h"
#include "model/json/ordered_json.h"
#include "tests/model/grammar/grammar_texts.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

std::shared_ptr<const ByteProgram> any_value() {
    return schema_program("true").value();
}

Json random_value(std::mt19937& random, int depth) {
    switch (random() % (depth > 0 ? 7 : 5)) {
        case 0:
            return nullptr;
        case 1:
            return random() % 2 == 0;
        case 2:
            return static_cast<int64_t>(random()) - (int64_t{1} << 31);
        case 3:
            return (static_cast<double>(random()) - 2e9) *
                   std::pow(10.0, static_cast<int>(random() % 40) - 20);
        case 4: {
            constexpr const char* kPieces[]{
                "a", "\"", "\\", "/", "\n", "\x01", "é", "日", "😀", " "};
            std::string text;
            for (size_t i = random() % 6; i > 0; --i) text += kPieces[random() % 10];
            return text;
        }
        case 5: {
            Json array = Json::array();
            for (size_t i = random() % 4; i > 0; --i)
                array.push_back(random_value(random, depth - 1));
            return array;
        }
        default: {
            Json object = Json::object();
            for (size_t i = random() % 4; i > 0; --i) {
                object[std::string(random() % 3, 'k') + std::to_string(i)] =
                    random_value(random, depth - 1);
            }
            return object;
        }
    }
}

// Goal: what writers of JSON write is allowed, compact, indented, and with everything escaped.
TEST(JsonRules, AllowWhatALibraryWrites) {
    std::mt19937 random(1);
    GrammarAutomaton automaton(any_value());
    for (int i = 0; i < 2000; ++i) {
        const Json value = random_value(random, 4);
        EXPECT_TRUE(allows(automaton, value.dump())) << value.dump();
        EXPECT_TRUE(allows(automaton, value.dump(2))) << value.dump(2);
        EXPECT_TRUE(allows(automaton, value.dump(-1, ' ', true))) << value.dump(-1, ' ', true);
    }
}

// Goal: whatever is allowed is JSON. Method: texts of the test above with a byte changed, left out
// or doubled. Oracle: the parser accepts each that the machine allows; of those that the machine
// refuses the parser accepts only what the rules leave out (blanks in other places).
TEST(JsonRules, AllowNothingElse) {
    std::mt19937 random(2);
    GrammarAutomaton automaton(any_value());
    constexpr std::string_view kBytes =
        "{}[]\",:\\u0123456789abcdefE+-. \n\t\x01\x80\xbf\xc3\xe0\xed\xf4\xff";
    int num_allowed = 0;
    int num_refused = 0;
    for (int i = 0; i < 20000; ++i) {
        std::string text = random_value(random, 3).dump();
        const size_t at = random() % text.size();
        const char byte = kBytes[random() % kBytes.size()];
        switch (random() % 3) {
            case 0:
                text[at] = byte;
                break;
            case 1:
                text.erase(at, 1);
                break;
            default:
                text.insert(at, 1, byte);
        }
        const bool is_json = Json::accept(text);
        if (allows(automaton, text)) {
            ++num_allowed;
            EXPECT_TRUE(is_json) << text;
        } else if (is_json) {
            // The blank that was put in, or the digit.
            EXPECT_NE(text.find_first_of(" \n\t.eE"), std::string::npos) << text;
        } else {
            ++num_refused;
        }
    }
    EXPECT_GT(num_allowed, 1000);
    EXPECT_GT(num_refused, 1000);
}

// Goal: the limits that keep a model from writing for ever, and those of a reader.
TEST(JsonRules, KnowTheirLimits) {
    GrammarAutomaton automaton(any_value());
    const std::string line = "\n" + std::string(JsonRules::kIndentMax, ' ');
    EXPECT_TRUE(allows(automaton, "[" + line + "1]"));
    EXPECT_FALSE(allows(automaton, "[" + line + " 1]"));
    EXPECT_TRUE(allows(automaton, "[\r\n\t1]"));
    EXPECT_TRUE(allows(automaton, "[ 1]"));
    EXPECT_FALSE(allows(automaton, "[  1]"));
    EXPECT_FALSE(allows(automaton, "[\n\n1]"));
    EXPECT_FALSE(allows(automaton, " 1"));
    EXPECT_FALSE(allows(automaton, "[1 ,2]"));
    EXPECT_FALSE(allows(automaton, "1 "));
    EXPECT_TRUE(
        allows(automaton, "-" + std::string(18, '9') + "." + std::string(24, '9') + "E+99"));
    EXPECT_FALSE(allows(automaton, std::string(19, '9')));
    EXPECT_FALSE(allows(automaton, "0." + std::string(25, '9')));
    EXPECT_FALSE(allows(automaton, "1e100"));
    EXPECT_FALSE(allows(automaton, "01"));
    EXPECT_TRUE(allows(automaton, R"("\uD83D\uDE00")"));
    EXPECT_FALSE(allows(automaton, R"("\uD83D")"));
    EXPECT_FALSE(allows(automaton, R"("\uDE00")"));
    EXPECT_TRUE(allows(any_object_program(), R"({"a": [1, {}]})"));
    EXPECT_FALSE(allows(any_object_program(), "[]"));
}

// As deep as who reads an answer takes it. What would be deeper is not offered, rather than left
// without an end.
TEST(JsonRules, NestAsDeepAsAnAnswerIsRead) {
    GrammarAutomaton automaton(any_value());
    const std::string lists(64, '[');
    EXPECT_TRUE(allows(automaton, lists + "1, true" + std::string(64, ']')));
    EXPECT_TRUE(parse_ordered_json(lists + std::string(64, ']'), "it").ok());
    GrammarAutomaton::State state = automaton.start();
    for (const char byte : lists) state = automaton.next(state, static_cast<uint8_t>(byte));
    EXPECT_EQ(automaton.next(state, '['), GrammarAutomaton::kDead);
    EXPECT_EQ(automaton.next(state, '{'), GrammarAutomaton::kDead);
    // A character of a string takes one more.
    EXPECT_TRUE(allows(automaton, lists + "\"\"" + std::string(64, ']')));
    EXPECT_FALSE(allows(automaton, lists + "\"a\"" + std::string(64, ']')));
    EXPECT_TRUE(allows(automaton, lists.substr(1) + "\"a\"" + std::string(63, ']')));
    std::string objects;
    for (int i = 0; i < 63; ++i) objects += R"({"a": )";
    EXPECT_TRUE(allows(automaton, objects + "{}" + std::string(63, '}')));
    EXPECT_FALSE(allows(automaton, objects + R"({"": {}})" + std::string(63, '}')));
}

}  // namespace
}  // namespace afd::model
