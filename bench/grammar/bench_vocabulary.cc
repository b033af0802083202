// SPDX-License-Identifier: Apache-2.0
#include "bench/grammar/bench_vocabulary.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include "model/tokenizer/tokenizer.h"

namespace afd::bench {
namespace {

constexpr size_t kPieceBytesMax = 14;
constexpr std::string_view kBlanksAndMarks = " \n\"'{}[](),:;.-_=<>/\\*+0123456789";

// All pairs and triples of these, as the vocabularies of models for code have them.
void add_marks(std::set<std::string>& tokens) {
    for (const char a : kBlanksAndMarks) {
        for (const char b : kBlanksAndMarks) {
            tokens.insert({a, b});
            for (const char c : std::string_view(" \"{}[],:\n")) tokens.insert({a, b, c});
        }
    }
}

void add_chinese(std::set<std::string>& tokens, size_t count) {
    std::mt19937 random(1);
    const size_t wanted = tokens.size() + count;
    while (tokens.size() < wanted) {
        std::string word;
        for (size_t i = 2 + random() % 2; i > 0; --i) {
            const auto code = static_cast<uint32_t>(0x4e00 + random() % 8000);
            word += static_cast<char>(0xe0 | code >> 12);
            word += static_cast<char>(0x80 | (code >> 6 & 0x3f));
            word += static_cast<char>(0x80 | (code & 0x3f));
        }
        tokens.insert(word);
    }
}

// The most frequent first.
std::vector<std::string> pieces_of(const std::string& text) {
    std::map<std::string_view, size_t> counts;
    for (size_t begin = 0; begin < text.size(); ++begin) {
        for (size_t size = 2; size <= kPieceBytesMax && begin + size <= text.size(); ++size) {
            ++counts[std::string_view(text).substr(begin, size)];
        }
    }
    std::vector<std::pair<size_t, std::string_view>> order;
    for (const auto& [piece, count] : counts) order.emplace_back(count, piece);
    std::stable_sort(
        order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> pieces;
    for (const auto& [count, piece] : order) pieces.emplace_back(piece);
    return pieces;
}

}  // namespace

std::vector<std::string> made_vocabulary(const std::string& text, size_t size) {
    std::set<std::string> tokens;
    add_marks(tokens);
    add_chinese(tokens, size / 5);
    const std::vector<std::string> pieces = pieces_of(text);
    for (const char* ending : {"", "ing", "ed", "ly", "s", "er"}) {
        for (const std::string& piece : pieces) {
            if (tokens.size() + 257 >= size) break;
            tokens.insert(piece + ending);
        }
    }
    std::vector<std::string> vocabulary{""};
    for (int byte = 0; byte < 256; ++byte) {
        vocabulary.emplace_back(1, static_cast<char>(byte));
    }
    vocabulary.insert(vocabulary.end(), tokens.begin(), tokens.end());
    vocabulary.resize(size);
    // As in those of models, where the tokens that a mask leaves out stand among the others.
    std::shuffle(vocabulary.begin() + 1, vocabulary.end(), std::mt19937(2));
    return vocabulary;
}

Result<std::vector<std::string>> vocabulary_of(const std::string& directory) {
    AFD_ASSIGN(const model::Tokenizer tokenizer, model::Tokenizer::load(directory));
    std::vector<std::string> vocabulary;
    for (uint32_t id = 0; id < tokenizer.size(); ++id) {
        vocabulary.emplace_back(tokenizer.token_bytes(id));
    }
    const auto end = std::find(vocabulary.begin(), vocabulary.end(), "");
    if (end != vocabulary.end()) std::iter_swap(vocabulary.begin(), end);
    return vocabulary;
}

}  // namespace afd::bench
