// SPDX-License-Identifier: Apache-2.0
//
// Masks over a vocabulary. Oracle: every token's bytes one by one through a machine of its own.
#include "model/grammar/token_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "model/grammar/schema/schema_program.h"
#include "tests/model/grammar/grammar_texts.h"

namespace afd::model {
namespace {

using testing::HasSubstr;

constexpr const char* kPerson =
    R"({"properties": {"name": {"type": "string"}, "age": {"type": "integer"},
        "id": {"type": "string", "maxLength": 5}}, "required": ["name"]})";

// Goal: where plain text may come, how much of it is known without a walk. Oracle: the schema.
TEST(GrammarAutomaton, KnowsHowManyPlainCharactersMayCome) {
    const auto count = [](const char* schema, std::string_view text) {
        GrammarAutomaton automaton(schema_program(schema).value());
        GrammarAutomaton::State state = automaton.start();
        for (const char c : text) state = automaton.next(state, static_cast<uint8_t>(c));
        return automaton.num_plain_characters(state);
    };
    constexpr const char* kSeven = R"({"type": "string", "minLength": 5, "maxLength": 7})";
    EXPECT_EQ(count(kSeven, "\""), 7U);
    EXPECT_EQ(count(kSeven, "\"日"), 6U);
    EXPECT_EQ(count(kSeven, "\"1234567"), 0U);
    EXPECT_EQ(count(kSeven, ""), 0U) << "the quote comes first, and nothing before it";
    EXPECT_EQ(count(R"({"items": {"type": "string"}})", "["), std::nullopt) << "blanks may come";
    EXPECT_EQ(count(R"({"type": "string", "maxLength": 90})", "\""),
              VocabularyTrie::kPlainCharactersMax);
    EXPECT_EQ(count(R"({"type": "string"})", "\""), VocabularyTrie::kPlainCharactersMax);
    EXPECT_EQ(count(R"({"enum": ["ab"]})", "\""), std::nullopt);
    EXPECT_EQ(count(R"({"type": "string"})", "\"\xe6"), 0U) << "within a character";
    EXPECT_EQ(count(R"({"type": "string"})", "x"), 0U) << "nothing may come";
}

// Goal: what a walk costs does not depend on what was walked before. Method: one byte after the
// other, again and in reverse, and when the numbers of the walks have begun anew. Oracle: another
// machine; a step that is taken twice costs nothing more.
TEST(GrammarAutomaton, AWalkCostsTheSameForWhoComesLater) {
    const auto program = schema_program(kPerson).value();
    const auto work_of = [](GrammarAutomaton& automaton, std::string_view text) {
        automaton.begin_walk();
        GrammarAutomaton::State state = automaton.start();
        for (const char c : text) state = automaton.next(state, static_cast<uint8_t>(c));
        automaton.next(automaton.start(), '{');
        return automaton.walk_work();
    };
    GrammarAutomaton known(program);
    constexpr std::string_view kText = R"({"name": "ab", "age": 12})";
    size_t work_before = 0;
    for (size_t length = 1; length <= kText.size(); ++length) {
        GrammarAutomaton empty(program);
        const size_t work = work_of(known, kText.substr(0, length));
        EXPECT_EQ(work, work_of(empty, kText.substr(0, length)));
        EXPECT_GT(work, work_before);
        work_before = work;
    }
    GrammarAutomaton::State state = known.start();
    for (const char c : std::string_view("{\"name\": \"")) {
        state = known.next(state, static_cast<uint8_t>(c));
    }
    known.num_plain_characters(state);
    const size_t plain_work = known.walk_work();
    known.num_plain_characters(state);
    EXPECT_EQ(known.walk_work(), plain_work);
    EXPECT_GT(plain_work, 0U);
    for (int i = 0; i < 65'600; ++i) known.begin_walk();
    EXPECT_EQ(work_of(known, kText), work_before);
}

// Goal: a schema of many letters costs what its text does. Method: letters whose second bytes are
// all there are, so that no two of these are alike; told one by one there are a million characters.
TEST(GrammarAutomaton, LettersThatAreAllTheirOwnCostLittle) {
    std::string letters;
    for (unsigned second = 0x80; second <= 0xbf; ++second) {
        letters += '\xc3';
        letters += static_cast<char>(second);
    }
    GrammarAutomaton automaton(
        schema_program(R"({"properties": {"a": {"enum": [")" + letters +
                       R"("]}, "b": {"type": "string"}}, "required": ["b"]})")
            .value());
    GrammarAutomaton::State state = automaton.start();
    for (const char c : std::string_view("{\"b\":\"")) {
        state = automaton.next(state, static_cast<uint8_t>(c));
    }
    ASSERT_NE(state, GrammarAutomaton::kDead);
    EXPECT_EQ(automaton.num_plain_characters(state), VocabularyTrie::kPlainCharactersMax);
    EXPECT_LT(automaton.num_bytes(), size_t{1} << 20);
}

// Goal: a mask has a token's bit exactly if the text so far with its bytes can go on, also of
// tokens that begin alike and of those that repeat others.
TEST(TokenConstraint, MaskIsThatOfEveryTokenByItself) {
    std::vector<std::string> tokens = small_vocabulary();
    tokens.push_back(tokens[40]);
    tokens.emplace_back("");
    const auto program = schema_program(kPerson).value();
    TokenConstraint constraint(program, std::make_shared<const VocabularyTrie>(tokens), {0});
    GrammarAutomaton automaton(program);
    for (const char* text : {"",
                             "{",
                             "{\"name\"",
                             "{\"name\": \"",
                             "{\"name\": \"\xe6",
                             "{\"name\": \"a\\u00",
                             "{\"name\": \"a\"",
                             "{\"name\": \"a\", \"age\": -1",
                             "{\"name\": \"a\"}",
                             "{\"name\": \"a\", \"id\": \"12"}) {
        GrammarAutomaton::State state = automaton.start();
        TokenConstraint at(program, std::make_shared<const VocabularyTrie>(tokens), {0});
        for (const char* byte = text; *byte != 0; ++byte) {
            state = automaton.next(state, static_cast<uint8_t>(*byte));
            ASSERT_TRUE(at.advance(1 + static_cast<uint8_t>(*byte))) << text;
        }
        const auto mask = at.allowed();
        for (uint32_t id = 1; id < tokens.size(); ++id) {
            GrammarAutomaton::State after = state;
            for (const char byte : tokens[id]) {
                after = automaton.next(after, static_cast<uint8_t>(byte));
            }
            const bool may_come = !tokens[id].empty() && after != GrammarAutomaton::kDead;
            EXPECT_EQ(TokenConstraint::is_set(mask, id), may_come) << text << " + " << tokens[id];
        }
        EXPECT_EQ(TokenConstraint::is_set(mask, 0), automaton.may_end(state)) << text;
    }
}

// Goal: a token that may not come changes nothing; behind the end nothing comes but the end.
TEST(TokenConstraint, RefusesWhatMayNotCome) {
    const std::vector<std::string> tokens{"", "{", "}", "x", "{}"};
    TokenConstraint constraint(
        any_object_program(), std::make_shared<const VocabularyTrie>(tokens), {0});
    EXPECT_FALSE(constraint.advance(0));
    EXPECT_FALSE(constraint.advance(3));
    EXPECT_TRUE(constraint.advance(1));
    EXPECT_FALSE(constraint.advance(4));
    EXPECT_TRUE(constraint.advance(2));
    EXPECT_TRUE(constraint.may_end());
    EXPECT_FALSE(constraint.advance(1));
    EXPECT_TRUE(constraint.advance(0));
    EXPECT_TRUE(constraint.advance(0));
    EXPECT_FALSE(constraint.advance(2));
}

// Goal: where a document is complete and nothing may follow it, only its end may come; where more
// may follow, or it is not complete, that is not so.
TEST(TokenConstraint, AllowsOnlyEndsWhereNothingElseMayCome) {
    const std::vector<std::string> tokens{"", "1", "2", "[", "]", ""};
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    TokenConstraint number(schema_program(R"({"type": "integer"})").value(), vocabulary, {5, 0, 5});
    TokenConstraint list(schema_program(R"({"type": "array"})").value(), vocabulary, {0, 5});
    const auto asked = [](TokenConstraint& constraint) {
        constraint.allowed();
        const std::vector<uint32_t> ends = {5, 0, 5};
        return std::pair(constraint.may_end(), constraint.allows_only(ends));
    };
    EXPECT_EQ(asked(number), std::pair(false, false));
    ASSERT_TRUE(number.advance(1));
    EXPECT_EQ(asked(number), std::pair(true, false));
    ASSERT_TRUE(list.advance(3));
    EXPECT_EQ(asked(list), std::pair(false, false));
    ASSERT_TRUE(list.advance(4));
    EXPECT_EQ(asked(list), std::pair(true, true));
}

// Goal: where the vocabulary cannot write what has to come, that is told. Method: a vocabulary
// without a quote.
TEST(TokenConstraint, IsStuckWithoutATokenForWhatHasToCome) {
    const std::vector<std::string> tokens{"", "{", "}", "x"};
    TokenConstraint constraint(
        schema_program(R"({"properties": {"a": true}, "required": ["a"]})").value(),
        std::make_shared<const VocabularyTrie>(tokens),
        {0});
    constraint.allowed();
    EXPECT_FALSE(constraint.is_stuck());
    ASSERT_TRUE(constraint.advance(1));
    constraint.allowed();
    EXPECT_TRUE(constraint.is_stuck());
}

// Goal: a request that is replayed has the masks that it would have had. Method: a text whose masks
// were all asked for, and one that only went on by the same tokens. Oracle: the masks behind them.
TEST(TokenConstraint, GoesOnBehindAReplayAsIfItHadAskedForEveryMask) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto program = schema_program(kPerson).value();
    TokenConstraint asked(program, vocabulary, {0});
    std::vector<uint32_t> ids;
    std::mt19937 random(6);
    for (int i = 0; i < 60; ++i) {
        const auto mask = asked.allowed();
        std::vector<uint32_t> choices;
        for (uint32_t id = 1; id < tokens.size(); ++id) {
            if (TokenConstraint::is_set(mask, id)) choices.push_back(id);
        }
        TokenConstraint replayed(program, vocabulary, {0});
        for (const uint32_t id : ids) ASSERT_TRUE(replayed.advance(id));
        const auto again = replayed.allowed();
        ASSERT_TRUE(std::equal(mask.begin(), mask.end(), again.begin())) << i;
        if (choices.empty()) break;
        ids.push_back(choices[random() % choices.size()]);
        ASSERT_TRUE(asked.advance(ids.back()));
    }
    EXPECT_GT(ids.size(), 10U);
}

// Goal: a text whose position moves to an empty machine goes on as if it had not. Method: texts of
// pieces of JSON; one moves before every byte. Oracle: one machine for the whole text.
TEST(GrammarAutomaton, GoesOnInAnEmptyMachine) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto program = schema_program(R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object",
            "properties": {"name": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
            "additionalProperties": {"type": "string"}}}})")
                             .value();
    std::mt19937 random(11);
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    for (int i = 0; i < 20; ++i) {
        TokenConstraint constraint(program, vocabulary, {0});
        std::string text = random_text(constraint, tokens, random, 80);
        text += "x";
        GrammarAutomaton whole(program);
        auto moved = std::make_unique<GrammarAutomaton>(program);
        GrammarAutomaton::State state = whole.start();
        GrammarAutomaton::State other = moved->start();
        for (const char c : text) {
            const auto byte = static_cast<uint8_t>(c);
            const GrammarAutomaton::Position position = moved->position(other);
            moved = std::make_unique<GrammarAutomaton>(program);
            other = moved->adopt(position);
            ASSERT_LE(moved->num_states(), 3U);
            state = whole.next(state, byte);
            other = moved->next(other, byte);
            ASSERT_EQ(state == GrammarAutomaton::kDead, other == GrammarAutomaton::kDead) << text;
            if (state == GrammarAutomaton::kDead) break;
            ASSERT_EQ(whole.may_end(state), moved->may_end(other)) << text;
            ASSERT_EQ(whole.num_plain_characters(state), moved->num_plain_characters(other))
                << text;
        }
    }
}

// Goal: a machine that meets its limit says so, and a constraint goes on. Method: nested lists of
// which each depth has states of its own, as deep as they may be, over and over. Oracle: the text
// is still one of the grammar's in the end.
TEST(TokenConstraint, GoesOnWhereItsMachineIsFull) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    const auto program = schema_program(R"({"type": "array", "maxItems": 2000,
        "items": {"type": "string", "maxLength": 40}})")
                             .value();
    TokenConstraint constraint(program, vocabulary, {0});
    // Masks as for tokens of five characters: of each it would take minutes under a sanitizer.
    size_t num_characters = 0;
    const auto go_on = [&](std::string_view text) {
        for (const char c : text) {
            if (num_characters++ % 5 == 0) {
                ASSERT_FALSE(constraint.allowed().empty());
                ASSERT_FALSE(constraint.is_stuck());
            }
            ASSERT_TRUE(constraint.advance(1 + static_cast<uint8_t>(c))) << text;
        }
    };
    go_on("[\"\"");
    // Each element has states for each of its characters: more than a machine has room for.
    static_assert(420 * 42 > GrammarAutomaton::kStatesMax);
    for (int i = 0; i < 420; ++i) go_on(",\"0123456789012345678901234567890123456789\"");
    go_on("]");
    EXPECT_TRUE(constraint.may_end());
}

// Goal: an image is what it was made from; one that was changed is refused or harmless. Method:
// every mask of a text with a copy; then random bytes in random places of it.
TEST(VocabularyTrie, AnImageIsTheTrieAndOneThatWasChangedHarmsNobody) {
    const std::vector<std::string> tokens = small_vocabulary();
    const VocabularyTrie made(tokens);
    std::vector<uint64_t> words((made.image().size() + 7) / 8);
    const std::span<std::byte> copy{reinterpret_cast<std::byte*>(words.data()),
                                    made.image().size()};
    std::memcpy(copy.data(), made.image().data(), copy.size());
    const auto read = VocabularyTrie::read(copy, nullptr);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read.value().vocab_size(), tokens.size());
    for (uint32_t id = 0; id < tokens.size(); ++id) {
        EXPECT_EQ(read.value().bytes_of(id), tokens[id]);
    }
    std::mt19937 random(2);
    int num_refused = 0;
    for (int i = 0; i < 2000; ++i) {
        std::memcpy(copy.data(), made.image().data(), copy.size());
        for (int n = 0; n < 3; ++n) {
            // Half of them in the header and the first nodes, where the places are.
            const size_t end = n % 2 == 0 ? 400 : copy.size();
            copy[random() % end] = static_cast<std::byte>(random());
        }
        auto changed = VocabularyTrie::read(copy, nullptr);
        if (!changed.ok()) {
            ++num_refused;
            EXPECT_THAT(changed.error().message, HasSubstr("vocabulary"));
            continue;
        }
        TokenConstraint constraint(
            any_object_program(),
            std::make_shared<const VocabularyTrie>(std::move(changed).value()),
            {0});
        const auto mask = constraint.allowed();
        for (uint32_t id = 0; id < 300; ++id) constraint.advance(id);
        EXPECT_EQ(mask.size(), (tokens.size() + 63) / 64);
    }
    EXPECT_GT(num_refused, 500);
    EXPECT_THAT(VocabularyTrie::read(copy.first(31), nullptr).error().message,
                HasSubstr("has 31 bytes"));
}

TEST(VocabularyTrie, PlainTextIsWholeCharactersWithoutMeaning) {
    for (const char* plain : {"a", " the", "日本", "\x7f", "{}[]:,", "\xf0\x9f\x98\x80"}) {
        EXPECT_TRUE(VocabularyTrie::is_plain_text(plain)) << plain;
    }
    for (const char* other : {"", "a\"", "\\", "\n", "\xe6\x97", "\xff", "\xc0\x80"}) {
        EXPECT_FALSE(VocabularyTrie::is_plain_text(other)) << other;
    }
}

}  // namespace
}  // namespace afd::model
