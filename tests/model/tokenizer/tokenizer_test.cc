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
#include "tests/model/tokenizer/small_tokenizer.h"

namespace afd::model {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Goal: where nothing cuts a text, it is cut where no merge crosses, and the ids are those of the
// whole. Method: a vocabulary of characters whose merges cross a blank here and there; random
// words, blanks and characters that are no tokens. Oracle: a BytePairEncoder without parts.
TEST(Tokenizer, EncodesAWholeTextAsIfInOnePiece) {
    json vocab = json::object();
    BytePairEncoder encoder;
    const auto id_of = [&](const std::string& text) {
        if (!vocab.contains(text)) vocab[text] = vocab.size();
        return vocab[text].get<uint32_t>();
    };
    for (unsigned byte = 0; byte < 256; ++byte) {
        encoder.set_byte(static_cast<uint8_t>(byte), id_of(fmt::format("<0x{:02X}>", byte)));
    }
    const std::string sign = "\xe2\x96\x81";
    for (const std::string character : {sign.c_str(), "t", "h", "e", "a", "n", "."}) {
        encoder.set_character(character, id_of(character));
    }
    json merges = json::array();
    const auto merge = [&](const std::string& left, const std::string& right) {
        encoder.add_merge(
            id_of(left), id_of(right), id_of(left + right), static_cast<uint32_t>(merges.size()));
        merges.push_back({left, right});
    };
    for (const auto& [left, right] :
         std::vector<std::pair<std::string, std::string>>{{sign, sign},
                                                          {"t", "h"},
                                                          {"th", "e"},
                                                          {sign, "the"},
                                                          {sign, "a"},
                                                          {"a", "n"},
                                                          {"e", "."},
                                                          {".", sign},
                                                          {sign + "the", "n"},
                                                          {sign + sign, sign + sign}}) {
        merge(left, right);
    }
    const json file = {
        {"added_tokens", json::array()},
        {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", sign}}},
        {"pre_tokenizer", nullptr},
        {"decoder",
         {{"type", "Sequence"},
          {"decoders",
           {{{"type", "Replace"}, {"pattern", {{"String", sign}}}, {"content", " "}},
            {{"type", "ByteFallback"}},
            {{"type", "Fuse"}}}}}},
        {"model",
         {{"type", "BPE"},
          {"vocab", vocab},
          {"merges", merges},
          {"byte_fallback", true},
          {"unk_token", nullptr}}}};
    auto tokenizer = Tokenizer::parse(file.dump(), "", "test");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const std::vector<std::string> parts = {
        "the", "then", "an", "e.", " ", "  ", "     ", ". ", "t", "\xc3\xa9", "x", "\n"};
    std::mt19937 random(2);
    for (int round = 0; round < 200; ++round) {
        std::string text;
        for (int i = 0; i < 100; ++i) text += parts[random() % parts.size()];
        std::string normal;
        for (const char c : text) normal += c == ' ' ? sign : std::string(1, c);
        std::vector<uint32_t> expected;
        encoder.encode(normal, expected);
        ASSERT_EQ(encoded(tokenizer.value(), text), expected) << text;
    }
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

// Goal: an added token is the text that it is found in. Method: as DeepSeek-LLM's file has them,
// characters that stand for bytes which UTF-8 does not use; and contents that are stand-ins: of
// text, and of a byte that the vocabulary has. Oracle: the text that was encoded; what the others
// mean.
TEST(Tokenizer, AnAddedTokenThatIsNoStandInIsItsText) {
    json file = tokenizer_json();
    for (const bool is_normalized : {false, true}) {
        for (const auto& [content, id] :
             {std::pair("ö", 272U), std::pair("÷", 273U), std::pair("Ġthem", 274U)}) {
            file["model"]["vocab"].erase(content);
            file["added_tokens"].push_back({{"id", id},
                                            {"content", content},
                                            {"special", false},
                                            {"normalized", is_normalized}});
        }
        file["added_tokens"].push_back({{"id", 2 + 0xC3}, {"content", "Ã"}, {"special", false}});
        Tokenizer tokenizer = parsed(file);
        const std::vector<uint32_t> ids = encoded(tokenizer, "möchten ÷");
        EXPECT_THAT(ids, Contains(272));
        EXPECT_EQ(tokenizer.decode(ids), "möchten ÷");
        EXPECT_EQ(tokenizer.token_bytes(272), "ö");
        EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{274}), " them");
        EXPECT_EQ(tokenizer.decode(encoded(tokenizer, "ä")), "ä");
        file = tokenizer_json();
    }
}

// Goal: blanks that a model knows as one token are that in a message, and marks are text there.
// Oracle: encode(), which finds both.
TEST(Tokenizer, PlainTextHasOrdinaryAddedTokensAndNoMarks) {
    json file = tokenizer_json();
    file["added_tokens"].push_back(
        {{"id", 272}, {"content", "    "}, {"special", false}, {"normalized", true}});
    file["added_tokens"].push_back({{"id", 273}, {"content", "sos"}, {"special", true}});
    file["added_tokens"].push_back({{"id", 274}, {"content", "[x]"}, {"special", false}});
    file["added_tokens"].push_back({{"id", 275}, {"content", "/off"}, {"special", false}});
    file["added_tokens"].push_back({{"id", 276}, {"content", "a｜b"}, {"special", false}});
    Tokenizer tokenizer = parsed(file);
    EXPECT_EQ(tokenizer.encode_plain("the    the", true).value(), encoded(tokenizer, "the    the"));
    EXPECT_THAT(encoded(tokenizer, "the    the"), ElementsAre(259, 272, 259));
    for (const char* mark : {"<tool>", "sos", "[x]", "/off", "a｜b"}) {
        EXPECT_EQ(encoded(tokenizer, mark).size(), 1U) << mark;
        const auto plain = tokenizer.encode_plain(mark, true).value();
        EXPECT_EQ(plain.size(), std::string_view(mark).size()) << mark;
        EXPECT_EQ(tokenizer.decode(plain), mark);
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

}  // namespace
}  // namespace afd::model
