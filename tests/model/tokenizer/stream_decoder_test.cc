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
