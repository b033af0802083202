// SPDX-License-Identifier: Apache-2.0

// bench_grammar [--tokenizer DIR] [--text FILE]: what a response_format costs a step.
//
// Two rows for each schema, over the vocabulary of DIR or a made one of 131,072 tokens (its words
// come from FILE, by default the demo model's sample): for the first 32 requests of the schema, and
// for 32 others that come later. Texts are drawn: of the tokens that may come any one, and later on
// those that close something first.
//
//   tokens    of all texts together
//   walks     masks that were computed
//   first     microseconds of one of these: mean and largest
//   again     of a mask that was there
//   advance   of going on by a token
//   sample    that the choice of a token takes longer with a mask than without: its median over
//             the masks of one text
//   a token   mask, advance and sample, mean over all tokens
//   share     the same, for 1 and for 32 streams, over the time of the head alone for as many rows
//             ([vocabulary, 1024] bf16, two threads, in the same run): a step takes longer than its
//             head, so this is more than the share of a step. To be below 5 %.

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/attention/random_tensors.h"
#include "bench/grammar/bench_vocabulary.h"
#include "bench/limits/timing.h"
#include "model/grammar/schema/schema_program.h"
#include "model/grammar/shared_grammar.h"
#include "model/grammar/token_constraint.h"
#include "model/sampling/sampler.h"
#include "ops/linear/linear.h"
#include "proto/check.h"
#include "threads/thread_pool.h"

namespace afd::bench {
namespace {

constexpr size_t kVocabulary = 131'072;
constexpr size_t kHidden = 1024;
constexpr size_t kTexts = 32;
constexpr size_t kTokensMax = 200;
constexpr unsigned kThreads = 2;

struct Case {
    const char* name;
    const char* schema;  // Null: any object.
};
constexpr Case kCases[] = {
    {"json_object", nullptr},
    {"one string", R"({"type":"object","properties":{"answer":{"type":"string"}},
        "required":["answer"]})"},
    {"ten strings", R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"},
        "c":{"type":"string"},"d":{"type":"string"},"e":{"type":"string"},"f":{"type":"string"},
        "g":{"type":"string"},"h":{"type":"string"},"i":{"type":"string"},"j":{"type":"string"}},
        "required":["a","b","c","d","e","f","g","h","i","j"]})"},
    {"counted string", R"({"type":"string","minLength":20,"maxLength":300})"},
    {"enum and numbers", R"({"type":"object","properties":{"kind":{"enum":["red","green","blue"]},
        "x":{"type":"number"},"n":{"type":"integer"},"ok":{"type":"boolean"}},
        "required":["kind","x","n"]})"},
    {"list of people", R"({"type":"array","minItems":1,"maxItems":20,"items":{"type":"object",
        "properties":{"name":{"type":"string"},"age":{"type":"integer"},
        "tags":{"type":"array","items":{"type":"string"}}},"required":["name","age"]}})"},
    {"a tree", R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
        "value":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},
        "required":["value"]}}})"},
};

struct Cost {
    double first_us = 0;
    double first_us_max = 0;
    double again_us = 0;
    double advance_us = 0;
    std::vector<double> sample_us = {};
    size_t num_walks = 0;
    size_t num_tokens = 0;
};

// Microseconds that a choice takes longer under a mask than under none, measured in turns.
class ChoiceTimer {
  public:
    explicit ChoiceTimer(size_t vocab_size) : logits_(vocab_size), sampler_(vocab_size) {
        std::mt19937 random(3);
        std::normal_distribution<float> value(0, 2);
        for (float& logit : logits_) logit = value(random);
    }

    double extra_us(std::span<const uint64_t> mask) {
        std::vector<double> masked;
        std::vector<double> free;
        for (int i = 0; i < 15; ++i) {
            masked.push_back(choice_us(mask));
            free.push_back(choice_us({}));
        }
        return median(masked) - median(free);
    }

  private:
    double choice_us(std::span<const uint64_t> mask) {
        const model::SamplingParams params{.temperature = 0.7f, .top_p = 0.95f};
        return 1e6 * seconds_of([&] {
                   const auto token =
                       sampler_.sample(logits_, params, position_++, {.allowed = mask});
                   AFD_ASSERT(token.ok(), "%s", token.error().message.c_str());
               });
    }

    std::vector<float> logits_;
    model::Sampler sampler_;
    uint64_t position_ = 0;
};

// One text; its costs are added.
void run_text(const std::shared_ptr<model::SharedGrammar>& grammar,
              const std::vector<std::string>& vocabulary,
              std::mt19937& random,
              ChoiceTimer* timer,
              Cost& cost) {
    model::TokenConstraint constraint(grammar);
    std::vector<uint32_t> choices;
    std::vector<uint32_t> closing;
    for (size_t i = 0; i < kTokensMax; ++i) {
        std::span<const uint64_t> mask;
        const size_t num_walks = grammar->num_walks();
        const double first_us = 1e6 * seconds_of([&] { mask = constraint.allowed(); });
        const double again_us = 1e6 * seconds_of([&] { mask = constraint.allowed(); });
        const bool is_first = grammar->num_walks() != num_walks;
        cost.again_us += again_us;
        cost.first_us += is_first ? first_us : 0;
        cost.first_us_max = std::max(cost.first_us_max, is_first ? first_us : 0);
        cost.num_walks += is_first ? 1 : 0;
        ++cost.num_tokens;
        choices.clear();
        closing.clear();
        for (uint32_t id = 0; id < vocabulary.size(); ++id) {
            if (!model::TokenConstraint::is_set(mask, id)) continue;
            choices.push_back(id);
            const std::string& bytes = vocabulary[id];
            const bool closes = id == 0 || bytes == "\"" || bytes == "}" || bytes == "]";
            if (closes) closing.push_back(id);
        }
        AFD_ASSERT(!choices.empty(), "no token may come as number %zu", i);
        const auto& from = closing.empty() || random() % 16 != 0 ? choices : closing;
        const uint32_t id = from[random() % from.size()];
        if (timer != nullptr) cost.sample_us.push_back(timer->extra_us(mask));
        cost.advance_us += 1e6 * seconds_of([&] { constraint.advance(id); });
        if (id == 0) return;
    }
}

// Seconds of the head for so many rows.
double head_seconds(size_t vocab_size, size_t num_rows) {
    threads::ThreadPool pool(kThreads, 0, false, {});
    const ops::PackedLinear head = random_linear(vocab_size, kHidden);
    const std::vector<ops::Bf16> x = random_values(num_rows * kHidden, 1);
    std::vector<float> logits(num_rows * vocab_size);
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) {
        times.push_back(seconds_of([&] {
            ops::linear_f32(ops::make_rows(x.data(), num_rows, kHidden),
                            head,
                            ops::make_rows(logits.data(), num_rows, vocab_size),
                            pool);
        }));
    }
    return median(times);
}

void print_cost(const char* name, const Cost& cost, double head_us_1, double head_us_32) {
    const double sample_us = median(cost.sample_us);
    const auto tokens = static_cast<double>(cost.num_tokens);
    const double token_us = (cost.first_us + cost.again_us + cost.advance_us) / tokens + sample_us;
    const auto num_walks = static_cast<double>(std::max<size_t>(cost.num_walks, 1));
    std::printf("%-18s %7zu %7zu %8.0f %8.0f %8.2f %8.2f %8.0f %9.0f %8.2f %8.2f\n",
                name,
                cost.num_tokens,
                cost.num_walks,
                cost.first_us / num_walks,
                cost.first_us_max,
                cost.again_us / tokens,
                cost.advance_us / tokens,
                sample_us,
                token_us,
                100 * token_us / head_us_1,
                100 * token_us * kTexts / kThreads / head_us_32);
}

void run_case(const Case& wanted,
              const std::vector<std::string>& vocabulary,
              const std::shared_ptr<const model::VocabularyTrie>& trie,
              ChoiceTimer& timer,
              double head_us_1,
              double head_us_32) {
    std::shared_ptr<const model::ByteProgram> program = model::any_object_program();
    if (wanted.schema != nullptr) program = model::schema_program(wanted.schema).value();
    const auto grammar =
        std::make_shared<model::SharedGrammar>(program, trie, std::vector<uint32_t>{0});
    std::mt19937 random(7);
    for (const bool is_later : {false, true}) {
        Cost cost;
        for (size_t i = 0; i < kTexts; ++i) {
            run_text(grammar, vocabulary, random, i == 0 ? &timer : nullptr, cost);
        }
        print_cost(is_later ? "  later" : wanted.name, cost, head_us_1, head_us_32);
    }
}

void run_all(const std::vector<std::string>& vocabulary) {
    std::shared_ptr<const model::VocabularyTrie> trie;
    const double build_ms =
        1e3 * seconds_of([&] { trie = std::make_shared<const model::VocabularyTrie>(vocabulary); });
    const double head_us_1 = 1e6 * head_seconds(vocabulary.size(), 1);
    const double head_us_32 = 1e6 * head_seconds(vocabulary.size(), kTexts);
    std::printf(
        "%zu tokens, %zu nodes, image of %.1f MB made in %.0f ms; head of 1 row %.1f ms, "
        "of 32 rows %.1f ms\n",
        vocabulary.size(),
        trie->nodes().size(),
        static_cast<double>(trie->image().size()) / 1e6,
        build_ms,
        head_us_1 / 1e3,
        head_us_32 / 1e3);
    std::printf("%-18s %7s %7s %8s %8s %8s %8s %8s %9s %8s %8s\n",
                "",
                "tokens",
                "walks",
                "first us",
                "largest",
                "again",
                "advance",
                "sample",
                "a token",
                "% of 1",
                "% of 32");
    ChoiceTimer timer(vocabulary.size());
    for (const Case& wanted : kCases)
        run_case(wanted, vocabulary, trie, timer, head_us_1, head_us_32);
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    CLI::App app("What a response_format costs a step");
    std::string tokenizer;
    std::string file = "demo_model/valid_sample.txt";
    app.add_option("--tokenizer", tokenizer, "Directory of a model");
    app.add_option("--text", file, "Text that the made vocabulary's words are of")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (!tokenizer.empty()) {
        const auto vocabulary = afd::bench::vocabulary_of(tokenizer);
        if (!vocabulary.ok()) {
            std::fprintf(stderr, "%s\n", vocabulary.error().message.c_str());
            return 1;
        }
        afd::bench::run_all(vocabulary.value());
        return 0;
    }
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.empty()) {
        std::fprintf(stderr, "%s has no text; name one with --text\n", file.c_str());
        return 1;
    }
    afd::bench::run_all(afd::bench::made_vocabulary(text, afd::bench::kVocabulary));
    return 0;
}
