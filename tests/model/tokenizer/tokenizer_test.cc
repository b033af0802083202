// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/byte_pair_encoder.h"
#include "model/tokenizer/utf8.h"

namespace afd::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json split_step(const std::string& pattern) {
    return {{"type", "Split"},
            {"pattern", {{"Regex", pattern}}},
            {"behavior", "Isolated"},
            {"invert", false}};
}

json byte_level() {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

// A tokenizer with ids 0 and 1 special, byte b at 2 + b, "th", "the", " the" from 258, and two
// more added tokens at 270 and 271.
json tokenizer_json() {
    json vocab = json::object();
    for (unsigned byte = 0; byte < 256; ++byte) {
        vocab[byte_stand_in(static_cast<uint8_t>(byte))] = 2 + byte;
    }
    const std::string space = byte_stand_in(' ');
    vocab["th"] = 258;
    vocab["the"] = 259;
    vocab[space + "the"] = 260;
    const auto added = [](uint32_t id, const char* content, bool special) {
        return json{{"id", id}, {"content", content}, {"special", special}, {"lstrip", false}};
    };
    return {{"added_tokens",
             {added(0, "<|begin|>", true),
              added(1, "<|end|>", true),
              added(270, "<tool>", false),
              added(271, "<tool>x", false)}},
            {"normalizer", nullptr},
            {"pre_tokenizer",
             {{"type", "Sequence"}, {"pretokenizers", {split_step(R"( ?\p{L}+)"), byte_level()}}}},
            {"post_processor", nullptr},
            {"decoder", byte_level()},
            {"model",
             {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e", space + " the"}}}}};
}

Tokenizer parsed(const json& file, const std::string& config = "") {
    auto tokenizer = Tokenizer::parse(file.dump(), config, "tokenizer.json");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    return std::move(tokenizer).value();
}

std::string refusal(const json& file, const std::string& config = "") {
    const auto tokenizer = Tokenizer::parse(file.dump(), config, "tokenizer.json");
    EXPECT_FALSE(tokenizer.ok());
    return tokenizer.ok() ? "" : tokenizer.error().message;
}

std::vector<uint32_t> encoded(Tokenizer& tokenizer, const std::string& text) {
    auto ids = tokenizer.encode(text);
    EXPECT_TRUE(ids.ok()) << ids.error().message;
    return ids.ok() ? ids.value() : std::vector<uint32_t>();
}

// Goal: the heap gives what the definition says. Method: random merges over three letters, random
// pieces. Oracle: repeatedly merge the leftmost pair of lowest rank, by scanning.
TEST(BytePairEncoder, MergesLowestRankLeftmostFirst) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        BytePairEncoder encoder;
        std::vector<std::string> tokens = {"a", "b", "c"};
        for (uint32_t i = 0; i < 3; ++i) encoder.set_byte(static_cast<uint8_t>('a' + i), i);
        std::vector<std::pair<uint32_t, uint32_t>> merges;
        while (tokens.size() < 24) {
            const auto left = static_cast<uint32_t>(random() % tokens.size());
            const auto right = static_cast<uint32_t>(random() % tokens.size());
            const std::string merged = tokens[left] + tokens[right];
            if (merged.size() > 6 || std::ranges::find(tokens, merged) != tokens.end()) continue;
            encoder.add_merge(left,
                              right,
                              static_cast<uint32_t>(tokens.size()),
                              static_cast<uint32_t>(merges.size()));
            merges.emplace_back(left, right);
            tokens.push_back(merged);
        }
        for (int piece_idx = 0; piece_idx < 20; ++piece_idx) {
            std::string piece;
            for (size_t i = random() % 40; i > 0; --i) {
                piece.push_back(static_cast<char>('a' + random() % 3));
            }
            std::vector<uint32_t> expected;
            for (const char c : piece) expected.push_back(static_cast<uint32_t>(c - 'a'));
            for (size_t rank = 0; rank < merges.size();) {
                size_t at = 0;
                while (at + 1 < expected.size() &&
                       std::pair(expected[at], expected[at + 1]) != merges[rank]) {
                    ++at;
                }
                if (at + 1 >= expected.size()) {
                    ++rank;
                    continue;
                }
                expected[at] = static_cast<uint32_t>(3 + rank);
                expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at) + 1);
                rank = 0;
            }
            std::vector<uint32_t> ids;
            encoder.encode(piece, ids);
            EXPECT_EQ(ids, expected) << piece;
        }
    }
}

TEST(BytePairEncoder, EncodesAVeryLongPiece) {
    BytePairEncoder encoder;
    encoder.set_byte('a', 0);
    encoder.add_merge(0, 0, 1, 0);
    std::vector<uint32_t> ids;
    encoder.encode(std::string(300001, 'a'), ids);
    ASSERT_EQ(ids.size(), 150001u);
    EXPECT_EQ(ids.front(), 1u);
    EXPECT_EQ(ids.back(), 0u);
}

TEST(Tokenizer, EncodesAndDecodesBothFormsOfMerges) {
    json pairs = tokenizer_json();
    pairs["model"]["merges"] = json::array({json::array({"t", "h"}),
                                            json::array({"th", "e"}),
                                            json::array({byte_stand_in(' '), "the"})});
    for (const json& file : {tokenizer_json(), pairs}) {
        Tokenizer tokenizer = parsed(file);
        EXPECT_THAT(encoded(tokenizer, "the the"), ElementsAre(259, 260));
        EXPECT_THAT(encoded(tokenizer, "tht1"), ElementsAre(258, 2 + 't', 2 + '1'));
        EXPECT_THAT(encoded(tokenizer, "é"), ElementsAre(2 + 0xC3, 2 + 0xA9));
        EXPECT_THAT(encoded(tokenizer, ""), IsEmpty());
        EXPECT_EQ(tokenizer.decode(encoded(tokenizer, "the é 中\n\x01 the")), "the é 中\n\x01 the");
        // A second time from the cache.
        EXPECT_THAT(encoded(tokenizer, "the the"), ElementsAre(259, 260));
    }
}

TEST(Tokenizer, CutsAtAddedTokensLongestFirst) {
    Tokenizer tokenizer = parsed(tokenizer_json());
    EXPECT_THAT(encoded(tokenizer, "<|begin|>the<tool><tool>xthe<|end|>"),
                ElementsAre(0, 259, 270, 271, 259, 1));
    EXPECT_THAT(encoded(tokenizer, "<<tool"),
                ElementsAre(2 + '<', 2 + '<', 2 + 't', 2 + 'o', 2 + 'o', 2 + 'l'));
    EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{0, 259, 270, 1}), "the<tool>");
    EXPECT_EQ(tokenizer.size(), 272u);
    EXPECT_EQ(tokenizer.token_bytes(0), "");
    EXPECT_EQ(tokenizer.token_bytes(265), "");
    EXPECT_EQ(tokenizer.token_bytes(1u << 30), "");
}

TEST(Tokenizer, AddedTokensTakeBlanksAlongOrStandAlone) {
    json file = tokenizer_json();
    file["added_tokens"][0]["lstrip"] = true;
    file["added_tokens"][1]["rstrip"] = true;
    file["added_tokens"][2]["single_word"] = true;
    Tokenizer tokenizer = parsed(file);
    EXPECT_THAT(encoded(tokenizer, "the \u3000\n<|begin|> the"), ElementsAre(259, 0, 260));
    EXPECT_THAT(encoded(tokenizer, "the<|end|> \u00a0\tthe"), ElementsAre(259, 1, 259));
    EXPECT_THAT(encoded(tokenizer, "<|end|>  <|begin|>"), ElementsAre(1, 0));
    EXPECT_THAT(encoded(tokenizer, "the <tool>."), ElementsAre(259, 2 + ' ', 270, 2 + '.'));
    // A letter touches it: no token, and no other one within.
    EXPECT_EQ(encoded(tokenizer, "the<tool>").size(), 1u + 6u);
    EXPECT_EQ(encoded(tokenizer, "<tool>\u0301").size(), 6u + 2u);
    // Blanks that a token takes along are no tokens of their own.
    EXPECT_LE(tokenizer.tokens_min(std::string(4096, ' ') + "<|begin|>"), 1u);
}

// A vocabulary in characters: ids 0 and 1 special, byte b at 2 + b, then what `more` has.
json character_json(const std::vector<std::string>& more) {
    json file = tokenizer_json();
    json vocab = {{"<|begin|>", 0}, {"<|end|>", 1}};
    for (unsigned byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 2 + byte;
    for (const std::string& entry : more) vocab[entry] = vocab.size();
    file["model"]["vocab"] = vocab;
    file["model"]["byte_fallback"] = true;
    file["model"]["merges"] = json::array();
    file["added_tokens"].erase(3);
    file["added_tokens"].erase(2);
    file["pre_tokenizer"] = nullptr;
    file["decoder"] = {{"type", "Sequence"},
                       {"decoders",
                        {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
    return file;
}

TEST(Tokenizer, FallsBackToBytesOfCharactersThatTheVocabularyLacks) {
    json file = character_json({"▁", "t", "h", "e", "th", "▁th"});
    file["normalizer"] = {
        {"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "▁"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
    file["model"]["merges"] = {"t h", "▁ th"};
    Tokenizer tokenizer = parsed(file);
    EXPECT_THAT(encoded(tokenizer, "the éth"), ElementsAre(263, 261, 258, 2 + 0xC3, 2 + 0xA9, 262));
    EXPECT_THAT(encoded(tokenizer, "<|end|>the"), ElementsAre(1, 263, 261));
    EXPECT_EQ(tokenizer.decode(encoded(tokenizer, "the  é中 th")), "the  é中 th");
    EXPECT_EQ(tokenizer.decode(encoded(tokenizer, "<|end|> the")), " the");
    json without = file;
    without["model"]["byte_fallback"] = false;
    EXPECT_THAT(refusal(without),
                HasSubstr("model.byte_fallback is false and pre_tokenizer has no ByteLevel"));
    file["model"]["vocab"].erase("<0xE4>");
    EXPECT_THAT(refusal(file), HasSubstr("model.vocab has no token for byte 228 (\"<0xE4>\")"));
}

// A normalizer may make an added token longer than its content and than all others.
TEST(Tokenizer, CountsANormalizedTokenWithItsWholeLength) {
    const std::string normal(60, 'a');
    json file = character_json({"a"});
    file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "b"}}}, {"content", normal}};
    file["added_tokens"].push_back({{"id", 270}, {"content", "b"}, {"normalized", true}});
    Tokenizer tokenizer = parsed(file);
    EXPECT_THAT(encoded(tokenizer, normal), ElementsAre(270));
    EXPECT_LE(tokenizer.tokens_min(normal), 1u);
}

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

TEST(Tokenizer, PutsMetaspaceBeforeTheFirstPieceOnly) {
    json file = character_json({"▁", "a", "▁a"});
    file["model"]["merges"] = {"▁ a"};
    const auto with_scheme = [&](const char* scheme) {
        file["pre_tokenizer"] = {
            {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
        return parsed(file);
    };
    Tokenizer first = with_scheme("first");
    EXPECT_THAT(encoded(first, "a a<|end|>a"), ElementsAre(260, 260, 1, 259));
    EXPECT_THAT(encoded(first, " a<|end|> a"), ElementsAre(260, 1, 260));
    Tokenizer always = with_scheme("always");
    EXPECT_THAT(encoded(always, "a<|end|>a"), ElementsAre(260, 1, 260));
    Tokenizer never = with_scheme("never");
    EXPECT_THAT(encoded(never, "a a"), ElementsAre(259, 260));
}

TEST(Tokenizer, IgnoreMergesTakesAWholePieceFirst) {
    json file = tokenizer_json();
    file["model"]["vocab"]["zzz"] = 261;
    Tokenizer plain = parsed(file);
    EXPECT_THAT(encoded(plain, "zzz"), ElementsAre(2 + 'z', 2 + 'z', 2 + 'z'));
    file["model"]["ignore_merges"] = true;
    Tokenizer whole = parsed(file);
    EXPECT_THAT(encoded(whole, "zzz"), ElementsAre(261));
}

TEST(Tokenizer, SplitsDigitsAndByGpt2ExpressionWhereAsked) {
    json file = tokenizer_json();
    file["model"]["vocab"]["11"] = 261;
    file["model"]["merges"].push_back("1 1");
    json& steps = file["pre_tokenizer"]["pretokenizers"];
    steps = {{{"type", "Digits"}, {"individual_digits", true}}, byte_level()};
    Tokenizer individual = parsed(file);
    EXPECT_THAT(encoded(individual, "11"), ElementsAre(2 + '1', 2 + '1'));
    steps[0]["individual_digits"] = false;
    Tokenizer runs = parsed(file);
    EXPECT_THAT(encoded(runs, "11"), ElementsAre(261));
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    Tokenizer gpt2 = parsed(file);
    EXPECT_THAT(encoded(gpt2, "the11 the"), ElementsAre(259, 261, 260));
}

TEST(Tokenizer, KnowsWhatGoesAroundAPromptFromConfigOrTemplate) {
    const auto start = [](const Tokenizer& tokenizer) {
        return std::vector<uint32_t>(tokenizer.prompt_start().begin(),
                                     tokenizer.prompt_start().end());
    };
    const auto end = [](const Tokenizer& tokenizer) {
        return std::vector<uint32_t>(tokenizer.prompt_end().begin(), tokenizer.prompt_end().end());
    };
    const std::string config = R"({"add_bos_token": true, "bos_token": "<|begin|>"})";
    EXPECT_THAT(start(parsed(tokenizer_json())), IsEmpty());
    EXPECT_THAT(start(parsed(tokenizer_json(), config)), ElementsAre(0));
    EXPECT_THAT(start(parsed(tokenizer_json(),
                             R"({"add_bos_token": true, "bos_token": {"content": "<|end|>"}})")),
                ElementsAre(1));
    const Tokenizer with_eos =
        parsed(tokenizer_json(), R"({"add_eos_token": true, "eos_token": "<|end|>"})");
    EXPECT_THAT(start(with_eos), IsEmpty());
    EXPECT_THAT(end(with_eos), ElementsAre(1));
    const auto special = [](const char* id) {
        return json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
    };
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    json file = tokenizer_json();
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {special("<|begin|>"), special("<tool>"), text, special("<|end|>")}}};
    EXPECT_THAT(start(parsed(file)), ElementsAre(0, 270));
    EXPECT_THAT(end(parsed(file)), ElementsAre(1));
    EXPECT_THAT(start(parsed(file, config)), ElementsAre(0));
    const Tokenizer without = parsed(file, R"({"add_bos_token": false, "add_eos_token": false})");
    EXPECT_THAT(start(without), IsEmpty());
    EXPECT_THAT(end(without), IsEmpty());
    EXPECT_THAT(refusal(file, R"({"add_bos_token": true, "bos_token": "<?>"})"),
                HasSubstr("the prompt's token \"<?>\" is in neither added_tokens nor model.vocab"));
    EXPECT_THAT(refusal(file, R"({"add_bos_token": true})"),
                HasSubstr("add_bos_token is true, but bos_token is null"));
    file["post_processor"]["single"].push_back(text);
    EXPECT_THAT(refusal(file), HasSubstr("supported: special tokens and one Sequence"));
    json many = json::array({text});
    for (int i = 0; i < 65; ++i) many.push_back(special("<|end|>"));
    file["post_processor"]["single"] = many;
    EXPECT_THAT(refusal(file), HasSubstr("one Sequence; at most 64 tokens"));
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

// As in DeepSeek-V2: no valid text holds these bytes.
TEST(Tokenizer, TakesAVocabularyWithoutTheBytesThatUtf8DoesNotUse) {
    json file = tokenizer_json();
    std::vector<unsigned> unused = {0xC0, 0xC1};
    for (unsigned byte = 0xF5; byte < 0x100; ++byte) unused.push_back(byte);
    for (const unsigned byte : unused) {
        file["model"]["vocab"].erase(byte_stand_in(static_cast<uint8_t>(byte)));
    }
    Tokenizer tokenizer = parsed(file);
    const std::string text = "the \u007F\u0080\u07FF\u0800\uFFFD\U00010000\U0010FFFF";
    EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text)), text);
    for (const unsigned byte : {0x80u, 0xC2u, 0xF4u}) {
        json without = file;
        without["model"]["vocab"].erase(byte_stand_in(static_cast<uint8_t>(byte)));
        EXPECT_THAT(refusal(without),
                    HasSubstr("model.vocab has no token for byte " + std::to_string(byte)));
    }
}

// Other libraries read the file too, and number an added token anew that the vocabulary lacks.
TEST(Tokenizer, OfTheDemoModelHasItsSpecialTokensInTheVocabulary) {
    const std::string directory = AFD_DEMO_MODEL;
    std::ifstream stream(directory + "/tokenizer.json");
    const json file = json::parse(stream);
    ASSERT_EQ(file["added_tokens"].size(), 2u);
    for (const json& token : file["added_tokens"]) {
        EXPECT_EQ(file["model"]["vocab"].at(token["content"].get<std::string>()), token["id"]);
    }
    auto tokenizer = Tokenizer::load(directory);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    // What the tokenizers library gives.
    EXPECT_THAT(encoded(tokenizer.value(), "<|begin|>She was 123 years<|end|>"),
                ElementsAre(0, 1501, 335, 34, 51, 52, 53, 982, 1));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
    Tokenizer tokenizer = parsed(tokenizer_json());
    const auto ids = tokenizer.encode("a\xC3(");
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, Code::kInvalidArgument);
    EXPECT_EQ(ids.error().message, "the text is not valid UTF-8");
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
    const Tokenizer tokenizer = parsed(tokenizer_json());
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.append(259), "the");
    EXPECT_EQ(decoder.append(2 + 0xF0), "");
    EXPECT_EQ(decoder.append(2 + 0x9F), "");
    EXPECT_EQ(decoder.append(2 + 0x99), "");
    EXPECT_EQ(decoder.append(2 + 0x82), "🙂");
    EXPECT_EQ(decoder.append(2 + 0xE4), "");
    EXPECT_EQ(decoder.append(2 + 'a'),
              "\uFFFD"
              "a");
    EXPECT_EQ(decoder.append(2 + 0xE4), "");
    EXPECT_EQ(decoder.finish(), "\uFFFD");
    EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, JudgesAGroupOfByteTokensAsAWhole) {
    const Tokenizer tokenizer = parsed(character_json({"▁", "a", "▁a"}));
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.append(0), "");
    EXPECT_EQ(decoder.append(260), "a");
    EXPECT_EQ(decoder.append(260), " a");
    EXPECT_EQ(decoder.append(2 + 0xC3), "");
    EXPECT_EQ(decoder.append(2 + 0xA9), "");
    EXPECT_EQ(decoder.append(259), "éa");
    EXPECT_EQ(decoder.append(2 + 0xC3), "");
    EXPECT_EQ(decoder.append(2 + 0xA9), "");
    EXPECT_EQ(decoder.append(2 + 0xC3), "");
    EXPECT_EQ(decoder.append(259), "\uFFFD\uFFFD\uFFFDa");
    EXPECT_EQ(decoder.append(2 + 0x41), "");
    EXPECT_EQ(decoder.finish(), "A");
}

TEST(StreamDecoder, ReplacesMaximalPartsOfInvalidSequences) {
    // The example of the Unicode standard, section 3.9.
    const std::string bytes = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
    const Tokenizer tokenizer = parsed(tokenizer_json());
    std::vector<uint32_t> ids;
    for (const char c : bytes) ids.push_back(2 + static_cast<unsigned char>(c));
    EXPECT_EQ(tokenizer.decode(ids), "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(StreamDecoder, PiecesJoinToTheWholeText) {
    const Tokenizer tokenizer = parsed(tokenizer_json());
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        std::vector<uint32_t> ids;
        for (size_t i = random() % 30; i > 0; --i) {
            // Mostly lead and continuation bytes, so that characters break in every way.
            ids.push_back(2 + 0x80 + static_cast<uint32_t>(random() % 128));
        }
        StreamDecoder decoder(tokenizer);
        std::string joined;
        for (const uint32_t id : ids) {
            const std::string text = decoder.append(id);
            EXPECT_TRUE(is_valid_utf8(text));
            joined += text;
        }
        joined += decoder.finish();
        EXPECT_EQ(joined, tokenizer.decode(ids));
    }
}

}  // namespace
}  // namespace afd::model
