// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/model/tokenizer/small_tokenizer.h"

namespace afd::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Thirty steps that double a text cost an error and not the memory.
TEST(Tokenizer, RefusesToReplaceWithoutEnd) {
    json file = character_json({"a"});
    json steps = json::array();
    for (int i = 0; i < 30; ++i) {
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
    }
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    Tokenizer tokenizer = parsed(file);
    const auto ids = tokenizer.encode("ab");
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, Code::kResourceExhausted);
    EXPECT_THAT(ids.error().message, HasSubstr("could make more than 4224 bytes"));
}

TEST(Tokenizer, ShowsTheStartOfALongValueInWholeCharacters) {
    json file = tokenizer_json();
    std::string value;
    for (int i = 0; i < 100; ++i) value += "é";
    file["post_processor"] = value;
    EXPECT_THAT(refusal(file), HasSubstr("é...; supported: null"));
}

struct Refusal {
    const char* pointer;
    json value;
    const char* message;
};

class RefusedTokenizer : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedTokenizer, NamesTheKeyItsValueAndWhatIsSupported) {
    json file = tokenizer_json();
    file[json::json_pointer(GetParam().pointer)] = GetParam().value;
    EXPECT_THAT(refusal(file), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizer,
    RefusedTokenizer,
    ::testing::Values(
        Refusal{"/normalizer",
                {{"type", "Nmt"}},
                "a step of normalizer is {\"type\":\"Nmt\"}; supported: null, Sequence, NFC"},
        Refusal{"/normalizer",
                {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}},
                "supported: Replace with content and a pattern"},
        Refusal{"/normalizer",
                {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", "x"}},
                "tokenizer.json: normalizer: the pattern ( is not accepted"},
        Refusal{"/pre_tokenizer",
                nullptr,
                "supported: ByteLevel if pre_tokenizer has it, and only then"},
        Refusal{
            "/pre_tokenizer/pretokenizers/0/type", "Whitespace", "a step of pre_tokenizer is {"},
        Refusal{"/pre_tokenizer/pretokenizers/0/behavior",
                "Kept",
                "behavior of Split is \"Kept\"; supported: Isolated, Removed"},
        Refusal{"/pre_tokenizer/pretokenizers/0/invert",
                1,
                "Split: invert is 1; true or false is needed"},
        Refusal{"/pre_tokenizer/pretokenizers/0/pattern",
                {{"Literal", "x"}},
                "pattern of Split is {\"Literal\":\"x\"}"},
        Refusal{"/pre_tokenizer/pretokenizers/0/pattern/Regex",
                "(?m)a",
                "tokenizer.json: pre_tokenizer: the pattern (?m)a uses the option (?m)"},
        Refusal{
            "/pre_tokenizer/pretokenizers/2",
            {{"type", "Digits"}},
            "the step of pre_tokenizer after ByteLevel is {\"type\":\"Digits\"}; supported: none"},
        Refusal{"/pre_tokenizer/pretokenizers/0",
                {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}},
                "Metaspace: prepend_scheme is \"last\"; supported: always, first, never"},
        Refusal{"/pre_tokenizer/pretokenizers/0",
                {{"type", "Metaspace"}},
                "tokenizer.json: Metaspace: replacement is missing, empty or more than the one"},
        Refusal{"/pre_tokenizer/pretokenizers/0",
                {{"type", "Metaspace"}, {"replacement", "▁▁"}},
                "tokenizer.json: Metaspace: replacement is missing, empty or more than the one"},
        Refusal{"/post_processor",
                {{"type", "BertProcessing"}},
                "post_processor is {\"type\":\"BertProcessing\"}"},
        Refusal{"/decoder", {{"type", "WordPiece"}}, "decoder is {\"type\":\"WordPiece\"}"},
        Refusal{"/decoder",
                {{"type", "ByteFallback"}},
                "supported: ByteLevel if pre_tokenizer has it, and only then"},
        Refusal{"/decoder",
                {{"type", "Sequence"},
                 {"decoders",
                  {{{"type", "Fuse"}},
                   {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}}}}},
                "supported: Strip of one character"},
        Refusal{"/model/type", "Unigram", "model.type is \"Unigram\"; supported: \"BPE\""},
        Refusal{"/model/byte_fallback", 1, "model: byte_fallback is 1; true or false"},
        Refusal{"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is \"</w>\""},
        Refusal{"/model/merges/0", "t h e", "model.merges holds \"t h e\""},
        Refusal{"/model/merges/0", "q u", "\"q u\" names or makes a token"},
        Refusal{"/model/vocab/th", -1, "the id of token \"th\" is -1"},
        Refusal{"/model/vocab/中", 300, "token \"中\" is not written in the byte alphabet"},
        Refusal{"/added_tokens/0/lstrip",
                "no",
                "added token \"<|begin|>\": lstrip is \"no\"; true or false is needed"},
        Refusal{"/added_tokens/0/content", "", "without content"},
        Refusal{"/model/vocab/<tool>",
                269,
                "token \"<tool>\" has id 270 in added_tokens and 269 in model.vocab"}));

TEST(Tokenizer, RefusesAVocabularyWithoutAllBytes) {
    json file = tokenizer_json();
    file["model"]["vocab"].erase("A");
    EXPECT_THAT(refusal(file), HasSubstr("model.vocab has no token for byte 65 (\"A\")"));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
    Tokenizer tokenizer = parsed(tokenizer_json());
    const auto ids = tokenizer.encode("a\xC3(");
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, Code::kInvalidArgument);
    EXPECT_EQ(ids.error().message, "the text is not valid UTF-8");
}

}  // namespace
}  // namespace afd::model
