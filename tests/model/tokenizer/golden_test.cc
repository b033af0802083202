// SPDX-License-Identifier: Apache-2.0
//
// Goal: the ids and the text are what the tokenizers library gives. Method: texts of code, fifteen
// scripts, emoji, random code points, blanks and special tokens, and random ids, through tokenizers
// with the normalizers, pre-tokenizers, added tokens, templates and decoders of many families.
// Oracle: the library itself, asked once by golden/make_golden.js; golden.json keeps hashes of its
// answers. AFD_TOKENIZER_GOLDEN names another file to compare with, of any size.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/golden_file.h"

namespace afd::model {
namespace {

using nlohmann::json;

// FNV-1a over the little-endian bytes of 32-bit numbers, in hexadecimal.
template <typename Numbers>
std::string hash_of(const Numbers& numbers) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const auto number : numbers) {
        const auto word = static_cast<uint32_t>(number);
        for (unsigned shift = 0; shift < 32; shift += 8) {
            hash = (hash ^ (word >> shift & 255)) * 0x100000001b3u;
        }
    }
    std::string text(16, '0');
    for (size_t i = 16; i > 0; --i, hash >>= 4) text[i - 1] = "0123456789abcdef"[hash & 15];
    return text;
}

Tokenizer tokenizer_of(const json& family) {
    auto tokenizer = Tokenizer::parse(tokenizer_file_of(family).dump(), "", "golden.json");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    return std::move(tokenizer).value();
}

std::vector<uint32_t> with_template(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
    const auto start = tokenizer.prompt_start();
    const auto end = tokenizer.prompt_end();
    std::vector<uint32_t> all(start.begin(), start.end());
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), end.begin(), end.end());
    return all;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, EncodesAsTheTokenizersLibrary) {
    const json& family = golden().at("families").at(GetParam());
    Tokenizer tokenizer = tokenizer_of(family);
    const json& texts = golden().at("texts");
    int num_different = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
        const auto text = texts[i].get<std::string>();
        const auto encoded = tokenizer.encode(text);
        ASSERT_TRUE(encoded.ok()) << text << ": " << encoded.error().message;
        const std::vector<uint32_t> ids = with_template(tokenizer, encoded.value());
        const json& expected = family.at("encoded")[i];
        const bool is_same = expected.is_string() ? hash_of(ids) == expected.get<std::string>()
                                                  : json(ids) == expected;
        EXPECT_LE(tokenizer.tokens_min(text), encoded.value().size()) << texts[i];
        if (is_same) continue;
        // A few are enough to see what is wrong.
        if (++num_different <= 5) {
            ADD_FAILURE() << texts[i].dump(-1, ' ', true) << " gives " << json(ids) << ", not "
                          << expected;
        }
    }
    EXPECT_EQ(num_different, 0);
}

// Added tokens of the families that are ordinary text.
const std::set<std::string> kOrdinary = {"  ", "   ", "öö"};

// Goal: in plain text nothing becomes an added token but ordinary text, and that is the only
// difference. Method: all texts, and the texts of the added tokens. Oracle: encode(), where it
// finds none of the others.
TEST_P(Golden, PlainTextHasNoAddedTokensButOrdinaryOnes) {
    const json& family = golden().at("families").at(GetParam());
    Tokenizer tokenizer = tokenizer_of(family);
    std::set<uint32_t> added;
    for (const json& token : family.value("added_tokens", json::array())) {
        const auto content = token.at("content").get<std::string>();
        const bool is_ordinary = kOrdinary.contains(content);
        if (!is_ordinary) added.insert(token.at("id").get<uint32_t>());
        EXPECT_EQ(tokenizer.added_token(content), token.at("id").get<uint32_t>());
        const auto plain = tokenizer.encode_plain("a" + content + "b", true);
        ASSERT_TRUE(plain.ok()) << plain.error().message;
        EXPECT_EQ(std::ranges::count(plain.value(), token.at("id").get<uint32_t>()),
                  is_ordinary ? 1 : 0)
            << content;
    }
    for (const json& entry : golden().at("texts")) {
        const auto text = entry.get<std::string>();
        const auto encoded = tokenizer.encode(text).value();
        const bool has_added =
            std::ranges::any_of(encoded, [&](uint32_t id) { return added.contains(id); });
        if (has_added) continue;
        EXPECT_EQ(tokenizer.encode_plain(text, true).value(), encoded) << entry;
    }
}

// Merges hide most of what a split does, so the pieces are compared too.
TEST_P(Golden, CutsAsTheTokenizersLibrary) {
    const json& family = golden().at("families").at(GetParam());
    auto pre_tokenizer = PreTokenizer::parse(family.at("pre_tokenizer"), "golden.json");
    ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.error().message;
    const json& texts = golden().at("texts");
    int num_different = 0;
    for (size_t i = 0; i < family.at("pieces").size(); ++i) {
        const auto text = texts[i].get<std::string>();
        std::vector<std::string_view> cut;
        ASSERT_TRUE(pre_tokenizer.value().cut(text, true, cut).ok());
        std::vector<std::string> pieces;
        std::string joined;
        for (const std::string_view piece : cut) {
            std::string shown(piece);
            if (pre_tokenizer.value().is_byte_level()) {
                shown.clear();
                for (const char c : piece) shown += byte_stand_in(static_cast<uint8_t>(c));
            }
            joined += (pieces.empty() ? "" : "\n") + shown;
            pieces.push_back(shown);
        }
        const json& expected = family["pieces"][i];
        const std::vector<uint8_t> bytes(joined.begin(), joined.end());
        const bool is_same = expected.is_string() ? hash_of(bytes) == expected.get<std::string>()
                                                  : json(pieces) == expected;
        if (!is_same && ++num_different <= 5) {
            ADD_FAILURE() << texts[i].dump(-1, ' ', true) << " gives " << json(pieces) << ", not "
                          << expected;
        }
    }
    EXPECT_EQ(num_different, 0);
}

// Lists with an "öö" are left out where ByteLevel decodes: there the texts differ (tokenizer.h).
TEST_P(Golden, DecodesAsTheTokenizersLibrary) {
    const json& family = golden().at("families").at(GetParam());
    const Tokenizer tokenizer = tokenizer_of(family);
    const json& lists = golden().at("id_lists").at(family.at("model").get<std::string>());
    const auto other = tokenizer.decoder().is_byte_level() ? tokenizer.added_token("öö")
                                                           : std::optional<uint32_t>();
    size_t num_left_out = 0;
    for (size_t i = 0; i < lists.size(); ++i) {
        const auto ids = lists[i].get<std::vector<uint32_t>>();
        if (other && std::ranges::find(ids, *other) != ids.end()) {
            ++num_left_out;
            continue;
        }
        const std::string text = tokenizer.decode(ids);
        const json& expected = family.at("decoded")[i];
        const std::vector<uint8_t> bytes(text.begin(), text.end());
        // Texts of a hash have 16 characters as well; they are compared as such where ids are kept.
        const bool is_hashed = family.at("encoded")[0].is_string();
        EXPECT_EQ(is_hashed ? hash_of(bytes) : text, expected.get<std::string>())
            << lists[i] << " gives " << text;
    }
    EXPECT_LT(num_left_out, lists.size() / 2);
}

std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const auto& [name, family] : golden().at("families").items()) names.push_back(name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Tokenizer,
                         Golden,
                         ::testing::ValuesIn(family_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace afd::model
