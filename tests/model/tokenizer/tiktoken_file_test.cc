// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tiktoken_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/tiktoken_model.h"

namespace afd::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer parsed_tiktoken(const std::string& file, const std::string& config = "") {
    auto tokenizer = Tokenizer::parse_tiktoken(file, config, "tiktoken.model");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    return std::move(tokenizer).value();
}

TEST(TiktokenFile, HasTokensAndSpecialOnesBehindThem) {
    Tokenizer tokenizer =
        parsed_tiktoken(tiktoken_model(tokens_with({"th", "the", " the", "\xE4\xB8\xAD"})),
                        R"({"added_tokens_decoder": {"260": {"content": "[BOS]", "special": true},
            "263": {"content": "<tool>", "special": false}},
            "add_bos_token": true, "bos_token": "[BOS]"})");
    EXPECT_EQ(tokenizer.size(), 260u + 256u);
    EXPECT_THAT(tokenizer.encode("[BOS]the the\u4e2dth<tool><|reserved_token_261|>").value(),
                ElementsAre(260, 257, 258, 259, 256, 263, 261));
    EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{260, 257, 263, 259, 261}), "the<tool>\u4e2d");
    EXPECT_THAT(
        std::vector<uint32_t>(tokenizer.prompt_start().begin(), tokenizer.prompt_start().end()),
        ElementsAre(260));
}

// Goal: any two tokens merge whose bytes together are a token, the lowest rank first, of equal ones
// the leftmost. Oracle: a scan over all pairs, again and again.
TEST(TiktokenFile, MergesTheLowestRankOfWhatPairsMake) {
    std::mt19937 random(5);
    for (int round = 0; round < 20; ++round) {
        std::vector<std::string> more;
        while (more.size() < 20) {
            std::string token;
            for (size_t i = 2 + random() % 4; i > 0; --i) {
                token += static_cast<char>('a' + random() % 2);
            }
            if (std::ranges::find(more, token) == more.end()) more.push_back(token);
        }
        const std::vector<std::string> tokens = tokens_with(more);
        std::unordered_map<std::string, uint32_t> ranks;
        for (uint32_t i = 0; i < tokens.size(); ++i) ranks.emplace(tokens[i], i);
        Tokenizer tokenizer = parsed_tiktoken(tiktoken_model(tokens));
        for (int i = 0; i < 30; ++i) {
            std::string text;
            for (size_t j = 1 + random() % 30; j > 0; --j) {
                text += static_cast<char>('a' + random() % 2);
            }
            std::vector<std::string> parts;
            if (ranks.contains(text)) parts.push_back(text);
            for (const char c : ranks.contains(text) ? "" : text) parts.emplace_back(1, c);
            while (true) {
                size_t best = parts.size();
                for (size_t j = 0; j + 1 < parts.size(); ++j) {
                    const auto at = ranks.find(parts[j] + parts[j + 1]);
                    if (at == ranks.end()) continue;
                    const bool is_better =
                        best == parts.size() || at->second < ranks[parts[best] + parts[best + 1]];
                    if (is_better) best = j;
                }
                if (best == parts.size()) break;
                parts[best] += parts[best + 1];
                parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
            }
            std::vector<uint32_t> expected;
            for (const std::string& part : parts) expected.push_back(ranks[part]);
            EXPECT_EQ(tokenizer.encode(text).value(), expected) << text;
        }
    }
}

TEST(TiktokenFile, RefusesLinesThatAreNoTokens) {
    const auto refusal = [](const std::string& file) {
        const auto tokenizer = Tokenizer::parse_tiktoken(file, "", "tiktoken.model");
        EXPECT_FALSE(tokenizer.ok());
        return tokenizer.ok() ? "" : tokenizer.error().message;
    };
    for (const char* line :
         {"YQ==", "YQ== x", "Y*== 1", "YQ= 1", "YQ== 1 2", "YQ== 99999999", " 1"}) {
        EXPECT_THAT(refusal(std::string("YWI= 0\n") + line + "\n"),
                    HasSubstr("tiktoken.model: line 2 is no token in base64 and its rank"))
            << line;
    }
    EXPECT_THAT(refusal(base64(std::string(4098, 'a')) + " 0\n"), HasSubstr("line 1 is no token"));
    EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0123\n"),
              "tiktoken.model: this is a pointer of Git LFS, no list of tokens; fetch the file "
              "itself with git lfs pull");
    EXPECT_THAT(refusal("YQ== 0\nversion 1\n"), HasSubstr("line 2 is no token"));
    EXPECT_THAT(refusal("YQ== 0\nYg== 0\n"), HasSubstr("line 2 repeats rank 0"));
    EXPECT_THAT(refusal("YQ== 0\n"), HasSubstr("model.vocab has no token for byte 0"));
}

TEST(TiktokenFile, CutsLongTextsIntoParts) {
    const std::string letters(25000, 'a');
    EXPECT_THAT(tiktoken_parts(""), ElementsAre(""));
    EXPECT_THAT(tiktoken_parts(letters + " "), ElementsAre(letters + " "));
    EXPECT_THAT(tiktoken_parts(letters + "b c"), ElementsAre(letters, "b c"));
    EXPECT_THAT(tiktoken_parts("x" + std::string(25000, ' ') + "\u3000y"),
                ElementsAre("x" + std::string(25000, ' '), "\u3000y"));
    std::string words;
    for (int i = 0; i < 200000; ++i) words += "\u4e2d ";
    EXPECT_THAT(tiktoken_parts(words + "\u4e2d"), ElementsAre(words, "\u4e2d"));
}

}  // namespace
}  // namespace afd::model
