// SPDX-License-Identifier: Apache-2.0
//
// What requests of one format share. Oracle: every token's bytes one by one through a machine that
// nobody else uses.
#include "model/grammar/shared_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "model/grammar/grammar_cache.h"
#include "model/grammar/schema/json_rules.h"
#include "model/grammar/schema/schema_program.h"
#include "proto/sampling.pb.h"
#include "tests/model/grammar/grammar_texts.h"

namespace afd::model {
namespace {

using testing::HasSubstr;

constexpr const char* kCounted = R"({"type": "string", "minLength": 20, "maxLength": 300})";
constexpr const char* kList = R"({"type": "array", "items": {"type": "object", "properties":
    {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}}}})";

// The mask behind `text`, of which token 0 is the end.
std::vector<bool> mask_by_bytes(const std::shared_ptr<const ByteProgram>& program,
                                const std::vector<std::string>& tokens,
                                std::string_view text) {
    GrammarAutomaton automaton(program);
    GrammarAutomaton::State state = automaton.start();
    for (const char c : text) state = automaton.next(state, static_cast<uint8_t>(c));
    std::vector<bool> mask(tokens.size());
    mask[0] = automaton.may_end(state);
    for (uint32_t id = 1; id < tokens.size(); ++id) {
        GrammarAutomaton::State after = state;
        for (const char c : tokens[id]) after = automaton.next(after, static_cast<uint8_t>(c));
        mask[id] = after != GrammarAutomaton::kDead;
    }
    return mask;
}

std::vector<bool> bits_of(std::span<const uint64_t> mask, size_t num_tokens) {
    std::vector<bool> bits(num_tokens);
    for (uint32_t id = 0; id < num_tokens; ++id) bits[id] = TokenConstraint::is_set(mask, id);
    return bits;
}

// Goes on by a token that may come, drawn by `random`; compares the mask that it is drawn from with
// that of the oracle. False: nothing but the end may come.
bool draw_one(TokenConstraint& constraint,
              const std::shared_ptr<const ByteProgram>& program,
              const std::vector<std::string>& tokens,
              std::mt19937& random,
              std::string& text) {
    const std::vector<bool> allowed = bits_of(constraint.allowed(), tokens.size());
    EXPECT_EQ(allowed, mask_by_bytes(program, tokens, text)) << text;
    std::vector<uint32_t> choices;
    for (uint32_t id = 1; id < tokens.size(); ++id) {
        if (allowed[id]) choices.push_back(id);
    }
    if (choices.empty()) return false;
    const uint32_t id = choices[random() % choices.size()];
    EXPECT_TRUE(constraint.advance(id)) << text << " + " << tokens[id];
    text += tokens[id];
    return true;
}

ResponseFormat schema_format(const std::string& schema) {
    ResponseFormat format;
    format.set_json_schema(schema);
    return format;
}

// Goal: a mask is computed once for all requests of a format, also of those that come later, and is
// the same memory; states of the same tokens have one mask. Oracle: the counts, by hand.
TEST(SharedGrammar, ComputesAMaskOnceForAllTexts) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto grammar = std::make_shared<SharedGrammar>(
        schema_program(kCounted).value(), vocabulary, std::vector<uint32_t>{0});
    std::vector<const uint64_t*> first;
    for (int round = 0; round < 3; ++round) {
        TokenConstraint constraint(grammar);
        ASSERT_TRUE(constraint.advance(1 + '"'));
        for (size_t i = 0; i < 300; ++i) {
            const uint64_t* const mask = constraint.allowed().data();
            if (round == 0) first.push_back(mask);
            EXPECT_EQ(mask, first[i]) << i;
            ASSERT_TRUE(constraint.advance(1 + 'a'));
        }
        // Before each of the first 20 and of the last ones, whose text a short token could end,
        // and once between.
        EXPECT_EQ(grammar->num_walks(), 20U + (ByteProgram::kShortBytes + 2) + 1U) << round;
    }
    // Before the last characters and those in front of character 20 nothing tells them apart.
    const std::set<const uint64_t*> different(first.begin(), first.end());
    EXPECT_LT(different.size(), 30U);
}

// Pieces of which some are longer than ByteProgram::kShortBytes, so that counts end within them.
std::vector<std::string> vocabulary_with_long_tokens() {
    std::vector<std::string> tokens = small_vocabulary();
    for (const size_t length : {31, 32, 33, 34, 40, 64, 130}) {
        const std::string run(length, 'a');
        for (const char* end : {"", "\"", "\",", "\\n", "\",\"a", "\"}", "b"}) {
            tokens.push_back(run + end);
        }
        tokens.push_back("\"" + run);
        tokens.push_back(std::string(length, ' '));
    }
    tokens.push_back(R"({"name":"aaa","age":1},{"name":"a","age":12},{"name":")");
    tokens.push_back(R"("},{"name":"","age":0},{"name":"","age":0},{"name":"","age":0},)");
    tokens.push_back(R"(1},{"name":"a","age":0},{"name":"a","age":0},{"name":"a","age":0}])");
    tokens.push_back("1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2");
    tokens.push_back("\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"");
    return tokens;
}

// Goal: what is counted has one walk for many of its states, and each of them its own mask, also
// where a long token comes to the end of a count. Oracle: mask_by_bytes().
TEST(SharedGrammar, TellsCountsApartWhereATokenCanEndThem) {
    const std::vector<std::string> tokens = vocabulary_with_long_tokens();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const std::pair<const char*, bool> cases[] = {
        {kCounted, true},
        {R"({"type": "string", "minLength": 90})", true},
        {R"({"type": "string", "maxLength": 12})", false},
        {R"({"type": "array", "minItems": 3, "maxItems": 60,
             "items": {"type": "integer"}})",
         true},
        {R"({"type": "array", "minItems": 45,
             "items": {"type": "string", "maxLength": 3}})",
         true},
        {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}],
             "items": {"type": "boolean"}, "minItems": 12, "maxItems": 50})",
         true},
        {R"({"type": "array", "maxItems": 9, "items": {"type": "object", "properties": {
             "name": {"type": "string", "maxLength": 99}, "age": {"type": "integer"}},
             "required": ["name", "age"]}})",
         true},
        {R"({"anyOf": [{"type": "string", "minLength": 3, "maxLength": 70},
             {"type": "string", "minLength": 90, "maxLength": 150},
             {"type": "array", "maxItems": 40, "items": {"type": "string", "maxLength": 40}}]})",
         true},
        {R"({"type": "array", "minItems": 2, "maxItems": 8, "items": {"type": "array",
             "maxItems": 40, "items": {"type": "integer"}}})",
         true},
    };
    for (const auto& [schema, has_alike] : cases) {
        const auto program = schema_program(schema).value();
        const auto grammar =
            std::make_shared<SharedGrammar>(program, vocabulary, std::vector<uint32_t>{0});
        std::mt19937 random(5);
        size_t num_drawn = 0;
        std::set<std::string> texts;
        for (int i = 0; i < 12; ++i) {
            TokenConstraint constraint(grammar);
            std::string text;
            for (int n = 0; n < 60; ++n, ++num_drawn) {
                texts.insert(text);
                if (!draw_one(constraint, program, tokens, random, text)) break;
                if (testing::Test::HasFailure()) FAIL() << schema;
            }
        }
        GrammarAutomaton automaton(program);
        std::set<GrammarAutomaton::State> states;
        for (const std::string& text : texts) {
            GrammarAutomaton::State state = automaton.start();
            for (const char c : text) state = automaton.next(state, static_cast<uint8_t>(c));
            states.insert(state);
        }
        if (has_alike) {
            EXPECT_LT(grammar->num_walks(), states.size()) << schema;
        } else {
            EXPECT_EQ(grammar->num_walks(), states.size()) << schema;
        }
    }
}

// Goal: with room for few masks, texts that take turns have those that they would have alone. The
// limit is met over and over: each text leaves machines to the other that it moves on from.
TEST(SharedGrammar, GivesTheSameMasksWhereItHasRoomForFew) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto program = schema_program(kList).value();
    const size_t mask_bytes = (tokens.size() + 63) / 64 * sizeof(uint64_t);
    for (const size_t num_masks : {1, 3, 1000}) {
        const auto grammar = std::make_shared<SharedGrammar>(
            program, vocabulary, std::vector<uint32_t>{0}, num_masks * mask_bytes);
        std::mt19937 random(4);
        std::vector<TokenConstraint> constraints(3, TokenConstraint(grammar));
        std::vector<std::string> texts(3);
        size_t num_drawn = 0;
        for (size_t i = 0; i < 240; ++i) {
            const size_t at = random() % 3;
            if (draw_one(constraints[at], program, tokens, random, texts[at])) {
                ++num_drawn;
            } else {
                constraints[at] = TokenConstraint(grammar);
                texts[at].clear();
            }
        }
        EXPECT_GT(num_drawn, 100U);
    }
}

// Many ways at once, of which each goes on in many. At most 23 KB.
std::string schema_of_many_ways(size_t num_lists, size_t num_inner) {
    const auto repeated = [](const std::string& text, size_t count) {
        std::string all = text;
        for (size_t i = 1; i < count; ++i) all += "," + text;
        return all;
    };
    return R"({"anyOf": [)" +
           repeated(R"({"type":"array","items":{"$ref":"#/$defs/x"}})", num_lists) +
           R"(], "$defs": {"x": {"anyOf": [)" + repeated(R"({"$ref":"#/$defs/o"})", num_inner) +
           R"(]}, "o": {"type": "array", "items": {"$ref": "#/$defs/x"}}}})";
}

// The pieces of lists and blanks of one to three bytes, besides those of every vocabulary.
std::vector<std::string> vocabulary_of_lists() {
    std::vector<std::string> tokens = small_vocabulary();
    for (const char a : std::string_view("[], \n\t")) {
        for (const char b : std::string_view("[], \n\t")) {
            tokens.push_back({a, b});
            for (const char c : std::string_view("[], \n\t")) tokens.push_back({a, b, c});
        }
    }
    return tokens;
}

// Goal: a mask takes a bounded number of instructions, whatever the schema; where that is too few,
// the text ends, and so it does where other texts have made all steps of the mask before. Method: a
// machine that knows the steps of every token. Oracle: a machine that nobody else uses, and that
// the known mask took no instruction more.
TEST(SharedGrammar, EndsATextWhoseMaskIsTooMuchWorkWhoeverCameBefore) {
    constexpr size_t kMost = GrammarAutomaton::kWalkWorkMax + GrammarAutomaton::kVisitsMax;
    const std::vector<std::string> tokens = vocabulary_of_lists();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    for (const auto& [num_lists, num_inner, ends] :
         {std::tuple(500, 20, true), std::tuple(100, 100, true), std::tuple(40, 5, false)}) {
        const auto program = schema_program(schema_of_many_ways(num_lists, num_inner)).value();
        MaskMachine known(program, vocabulary, {0}, MaskMachine::kMaskBytesMax);
        MaskMachine::State state = known.start();
        bool has_ended = false;
        for (size_t depth = 0; depth < 5 && !has_ended; ++depth) {
            for (const std::string& token : tokens) ASSERT_TRUE(known.after(state, token));
            const size_t num_visits = known.num_visits();
            const auto known_mask = known.mask(state);
            ASSERT_TRUE(known_mask);
            EXPECT_EQ(known.num_visits(), num_visits);
            MaskMachine empty(program, vocabulary, {0}, MaskMachine::kMaskBytesMax);
            const auto mask = empty.mask(empty.adopt(known.position(state)).value());
            ASSERT_TRUE(mask);
            EXPECT_LE(empty.num_visits(), kMost);
            EXPECT_TRUE(std::ranges::equal(mask->words, known_mask->words)) << depth;
            EXPECT_EQ(mask->num_tokens, known_mask->num_tokens);
            has_ended = mask->num_tokens == 0;
            state = known.after(state, "[").value();
        }
        EXPECT_EQ(has_ended, ends) << num_lists << " x " << num_inner;
    }
}

// Goal: schemas that are large without many ways at once have all of their masks. Method: random
// texts over a vocabulary with long tokens, and with every indentation. Oracle: a quarter of what a
// mask may take.
TEST(SharedGrammar, LargeSchemasAreFarFromTooMuchWork) {
    std::vector<std::string> tokens = vocabulary_with_long_tokens();
    for (int i = 1; i <= JsonRules::kIndentMax; ++i) {
        for (const char blank : {' ', '\t'}) tokens.push_back("\n" + std::string(i, blank));
    }
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto listed = [](size_t count, const auto& text_of) {
        std::string all = text_of(0);
        for (size_t i = 1; i < count; ++i) all += "," + text_of(i);
        return all;
    };
    const auto word = [](size_t i) { return "\"" + std::to_string(i * 7919 % 10007) + "word\""; };
    const auto member = [&](size_t i) {
        return word(i) + (i % 2 == 0 ? R"(:{"type":"string"})" : R"(:{"type":"integer"})");
    };
    const auto node = [&](size_t i) {
        return R"({"type":"object","properties":{"type":{"const":)" + word(i) +
               R"(},"inner":{"type":"array","items":{"$ref":"#"}}},"required":["type"]})";
    };
    for (const std::string& schema : {
             R"({"type":"array","items":{"enum":[)" + listed(3000, word) + "]}}",
             R"({"type":"object","properties":{)" + listed(300, member) + "}}",
             R"({"properties":{)" + listed(100, member) + R"(},"additionalProperties":true})",
             R"({"anyOf":[)" + listed(60, node) + "]}",
             std::string(R"({"type":"array","minItems":3,"maxItems":3000,"items":{"anyOf":[
                 {"type":"string","maxLength":5000},{"type":"object"},{"type":"integer"}]}})"),
         }) {
        const auto grammar = std::make_shared<SharedGrammar>(
            schema_program(schema).value(), vocabulary, std::vector<uint32_t>{0});
        std::mt19937 random(3);
        for (int i = 0; i < 3; ++i) {
            SharedGrammar::Place place = grammar->start();
            std::string text;
            for (int n = 0; n < 30; ++n) {
                const size_t num_visits = place.machine->num_visits();
                const auto mask = place.machine->mask(place.state);
                ASSERT_TRUE(mask) << schema.substr(0, 60);
                ASSERT_GT(mask->num_tokens, 0U) << schema.substr(0, 60);
                EXPECT_LT(place.machine->num_visits() - num_visits,
                          GrammarAutomaton::kWalkWorkMax / 4)
                    << schema.substr(0, 60) << " at " << text;
                std::vector<uint32_t> choices;
                for (uint32_t id = 1; id < tokens.size(); ++id) {
                    if (TokenConstraint::is_set(mask->words, id)) choices.push_back(id);
                }
                if (choices.empty()) break;
                const std::string& token = tokens[choices[random() % choices.size()]];
                place.state = place.machine->after(place.state, token).value();
                text += token;
            }
        }
    }
}

// Goal: threads may use texts of one grammar at once. Method: each draws texts of its own. Oracle:
// as above; and the thread sanitizer, where the build has it.
TEST(SharedGrammar, ServesSeveralThreads) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto program = schema_program(kList).value();
    const size_t mask_bytes = (tokens.size() + 63) / 64 * sizeof(uint64_t);
    const auto grammar = std::make_shared<SharedGrammar>(
        program, vocabulary, std::vector<uint32_t>{0}, 12 * mask_bytes);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 3; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            for (int i = 0; i < 4; ++i) {
                TokenConstraint constraint(grammar);
                std::string text;
                for (int n = 0; n < 25; ++n) {
                    if (!draw_one(constraint, program, tokens, random, text)) break;
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// Goal: a format that was asked for is not compiled again, whatever came between, as long as there
// is room; other end tokens are another grammar. What is wrong is not kept.
TEST(GrammarCache, KeepsAFormatForTheNextRequest) {
    const auto vocabulary = std::make_shared<const VocabularyTrie>(small_vocabulary());
    GrammarCache cache;
    const auto one = cache.grammar(schema_format(kCounted), vocabulary, {0}).value();
    const auto two = cache.grammar(schema_format(kList), vocabulary, {0}).value();
    EXPECT_NE(one, two);
    EXPECT_EQ(cache.grammar(schema_format(kCounted), vocabulary, {0}).value(), one);
    EXPECT_NE(cache.grammar(schema_format(kCounted), vocabulary, {0, 5}).value(), one);
    EXPECT_EQ(cache.size(), 3U);
    const auto wrong = cache.grammar(schema_format(R"({"pattern": "a"})"), vocabulary, {0});
    ASSERT_FALSE(wrong.ok());
    EXPECT_THAT(wrong.error().message, HasSubstr("pattern"));
    EXPECT_EQ(cache.size(), 3U);
}

// Goal: formats that nobody asks for again go, the oldest first, and what a request holds stays.
// Method: each of many formats is used, which is what makes it grow.
TEST(GrammarCache, GivesUpWhatWasAskedForLongestAgo) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    constexpr size_t kBytesMax = size_t{3} << 20;
    GrammarCache cache(kBytesMax);
    const auto format = [](int i) {
        return schema_format(R"({"type": "string", "maxLength": )" + std::to_string(200 + i) + "}");
    };
    const auto held = cache.grammar(format(0), vocabulary, {0}).value();
    TokenConstraint constraint(held);
    size_t largest = 0;
    for (int i = 1; i < 40; ++i) {
        const auto grammar = cache.grammar(format(i), vocabulary, {0}).value();
        TokenConstraint other(grammar);
        ASSERT_TRUE(other.advance(1 + '"'));
        for (int n = 0; n < 150; ++n) {
            other.allowed();
            ASSERT_TRUE(other.advance(1 + 'a'));
        }
        largest = std::max(largest, grammar->num_bytes());
        ASSERT_EQ(cache.grammar(format(i), vocabulary, {0}).value(), grammar) << i;
        ASSERT_LE((cache.size() - 1) * grammar->num_bytes() / 2, kBytesMax) << i;
    }
    EXPECT_LT(cache.size(), 20U);
    EXPECT_GT(cache.size(), 1U) << "none takes more than " << largest << " bytes";
    EXPECT_NE(cache.grammar(format(0), vocabulary, {0}).value(), held);
    EXPECT_TRUE(constraint.advance(1 + '"'));
    EXPECT_FALSE(constraint.allowed().empty());
    EXPECT_FALSE(constraint.is_stuck());
}

}  // namespace
}  // namespace afd::model
