// SPDX-License-Identifier: Apache-2.0
//
// Goal: no bytes of a model directory make a reader crash, hang or believe what is not there.
// Method: thousands of small random changes to valid files, with a fixed seed; the sanitizer build
// runs the same test. Oracle: a reader answers with a value or an error that has a message; what
// the safetensors reader accepts satisfies its invariants.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "model/checkpoint/generation_config.h"
#include "model/family/config_file.h"
#include "model/safetensors/safetensors.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/checkpoint/checkpoint_builder.h"

namespace afd::model {
namespace {

class Mutator {
  public:
    explicit Mutator(std::string valid) : valid_(std::move(valid)) {}

    // The valid text with one to four changes: a byte replaced, a stretch removed or repeated, or a
    // digit made large.
    std::string next() {
        std::string text = valid_;
        for (size_t i = 1 + random_() % 4; i > 0 && !text.empty(); --i) {
            const size_t at = random_() % text.size();
            const size_t count = 1 + random_() % 8;
            switch (random_() % 4) {
                case 0:
                    text[at] = static_cast<char>(random_());
                    break;
                case 1:
                    text.erase(at, count);
                    break;
                case 2:
                    text.insert(at, text.substr(at, count));
                    break;
                default:
                    text.insert(text.find_first_of("0123456789", at) % text.size(), "99999999");
            }
        }
        return text;
    }

  private:
    std::string valid_;
    std::mt19937 random_{20};
};

void expect_answer(const Error& error) {
    EXPECT_FALSE(error.message.empty());
    EXPECT_NE(error.code, Code::kOk);
}

TEST(Mutations, OfSafetensorsHeaders) {
    constexpr uint64_t kDataBytes = 28;
    Mutator mutator(
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":)"
        R"([0,12]},"b":{"dtype":"F32","shape":[4],"data_offsets":[12,28]}})");
    int num_accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        const std::string text = mutator.next();
        const auto tensors = parse_safetensors_header(text, 100, kDataBytes, "f");
        if (!tensors.ok()) {
            expect_answer(tensors.error());
            continue;
        }
        ++num_accepted;
        uint64_t end = 100;
        for (const TensorInfo& tensor : tensors.value()) {
            ASSERT_EQ(tensor.begin, end) << text;
            end = tensor.end;
            ASSERT_EQ(tensor_bytes(tensor.dtype, tensor.shape), tensor.end - tensor.begin) << text;
        }
        ASSERT_EQ(end, 100 + kDataBytes) << text;
    }
    EXPECT_GT(num_accepted, 0);
}

TEST(Mutations, OfConfigurations) {
    Mutator mutator(small_config().dump());
    int num_accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto config = parse_model_config(mutator.next(), "f");
        if (!config.ok()) {
            expect_answer(config.error());
            continue;
        }
        ++num_accepted;
        EXPECT_GT(config.value().num_groups, 0u);
        EXPECT_EQ(config.value().num_experts % config.value().num_groups, 0u);
        EXPECT_LE(config.value().top_k, config.value().num_experts);
    }
    EXPECT_GT(num_accepted, 0);
}

TEST(Mutations, OfGenerationConfigurations) {
    const auto config = parse_model_config(small_config().dump(), "f");
    ASSERT_TRUE(config.ok());
    Mutator mutator(R"({"eos_token_id":[1,2],"temperature":0.6,"top_p":0.9,"top_k":40})");
    int num_accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto generation = parse_generation_config(mutator.next(), config.value(), "f");
        if (!generation.ok()) {
            expect_answer(generation.error());
            continue;
        }
        ++num_accepted;
        for (const uint32_t id : generation.value().eos_token_ids) EXPECT_LT(id, 96u);
    }
    EXPECT_GT(num_accepted, 0);
}

TEST(Mutations, OfTokenizers) {
    nlohmann::json vocab = nlohmann::json::object();
    for (unsigned byte = 0; byte < 256; ++byte) {
        vocab[byte_stand_in(static_cast<uint8_t>(byte))] = byte;
    }
    vocab["th"] = 256;
    const nlohmann::json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const nlohmann::json file = {
        {"added_tokens",
         {{{"id", 257}, {"content", "<|end|>"}, {"special", true}, {"rstrip", true}}}},
        {"normalizer",
         {{"type", "Sequence"},
          {"normalizers",
           {{{"type", "NFC"}},
            {{"type", "Replace"}, {"pattern", {{"String", "1"}}}, {"content", "2"}}}}}},
        {"pre_tokenizer",
         {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", R"( ?\p{L}+|[^\s\p{Han}]+(?!\S))"}}},
             {"behavior", "MergedWithPrevious"}},
            {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}},
            byte_level}}}},
        {"post_processor",
         {{"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", "<|end|>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}},
        {"decoder", byte_level},
        {"model", {{"type", "BPE"}, {"merges", nlohmann::json::array({"t h"})}}}};
    // The vocabulary is put back after each change: nearly every change of it is just refused.
    Mutator mutator(file.dump());
    int num_accepted = 0;
    for (int i = 0; i < 3000; ++i) {
        auto changed = nlohmann::json::parse(mutator.next(), nullptr, false);
        if (changed.is_object() && changed.contains("model") && changed["model"].is_object()) {
            changed["model"]["vocab"] = vocab;
        }
        auto tokenizer = Tokenizer::parse(
            changed.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "", "f");
        if (!tokenizer.ok()) {
            expect_answer(tokenizer.error());
            continue;
        }
        ++num_accepted;
        const std::string text = "the <|end|> 中文 x1";
        const auto ids = tokenizer.value().encode(text);
        if (!ids.ok()) {
            expect_answer(ids.error());
            continue;
        }
        for (const uint32_t id : ids.value()) EXPECT_LT(id, tokenizer.value().size());
        for (const uint32_t id : tokenizer.value().prompt_start()) {
            EXPECT_LT(id, tokenizer.value().size());
        }
        EXPECT_LE(tokenizer.value().tokens_min(text), ids.value().size());
        tokenizer.value().decode(ids.value());
    }
    EXPECT_GT(num_accepted, 0);
}

}  // namespace
}  // namespace afd::model
