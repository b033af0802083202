// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "model/unicode/utf8.h"
#include "tests/model/tokenizer/small_tokenizer.h"

namespace afd::model {
namespace {

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

// Goal: a kept special token begins the text, so a blank behind it is inside. Method: decoders that
// take a blank away, each in its way. Oracle: Fuse joins <|end|> and a blank to one text, of which
// Strip finds no blank at the start; Metaspace treats the first token otherwise, and no other.
TEST(StreamDecoder, KeepsABlankBehindAKeptSpecialToken) {
    nlohmann::json strips = character_json({"▁", "a", "▁a"});
    nlohmann::json drops = strips;
    drops["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
    for (const nlohmann::json& file : {strips, drops}) {
        const Tokenizer tokenizer = parsed(file);
        EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{1, 260}, true), "<|end|> a");
        EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{260, 1, 260}, true), "a<|end|> a");
        EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{1, 260}, false), "a");
    }
    // A byte in front of it still is at the start.
    const std::vector<uint32_t> ids = {2 + 0x20, 1, 260};
    EXPECT_EQ(parsed(strips).decode(ids, true), "<|end|> a");
}

// Goal: what follows a prompt is what it adds to the prompt's text. Oracle: decode() of both, which
// knows of no prompt.
TEST(StreamDecoder, GoesOnWithTheTextOfAPrompt) {
    nlohmann::json strips = character_json({"▁", "a", "▁a"});
    nlohmann::json drops = strips;
    drops["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
    const std::vector<std::vector<uint32_t>> prompts = {
        {}, {0}, {0, 1}, {260}, {0, 260}, {260, 0}, {0, 259, 259}, {258}, {9999}};
    for (const nlohmann::json& file : {strips, drops, tokenizer_json()}) {
        const Tokenizer tokenizer = parsed(file);
        for (const bool keeps_special : {false, true}) {
            for (std::vector<uint32_t> ids : prompts) {
                const std::string before = tokenizer.decode(ids, keeps_special);
                StreamDecoder decoder(tokenizer, keeps_special);
                decoder.follow(ids);
                std::string said = before;
                for (const uint32_t id : {260U, 260U}) said += decoder.append(id);
                said += decoder.finish();
                ids.insert(ids.end(), {260, 260});
                EXPECT_EQ(said, tokenizer.decode(ids, keeps_special));
            }
        }
    }
    const Tokenizer tokenizer = parsed(strips);
    StreamDecoder decoder(tokenizer);
    decoder.follow(std::vector<uint32_t>{0, 260, 1});
    EXPECT_EQ(decoder.append(260), " a");
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
