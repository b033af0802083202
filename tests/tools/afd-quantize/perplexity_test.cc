// SPDX-License-Identifier: Apache-2.0
//
// A text streamed through a model means the same as one through a decoder that holds all of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/tensor_names.h"
#include "model/decoder/local_decoder.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"
#include "tests/tools/afd-quantize/small_quantise.h"
#include "threads/thread_pool.h"
#include "tools/afd-quantize/perplexity.h"
#include "tools/afd-quantize/streamed_decoder.h"
#include "tools/afd-quantize/text_sample.h"

namespace afd::tools {
namespace {

// What StreamedDecoder is to give, by a decoder that holds the whole model.
std::vector<double> local_surprises(const model::ModelFiles& files,
                                    const StreamedText& text,
                                    ChannelRanges& ranges) {
    ops::SerialParallel serial;
    const auto window = static_cast<uint32_t>(text.window);
    auto decoder =
        model::LocalDecoder::load(files, ops::best_numeric_class(), window, window, serial).value();
    ranges.assign(files.config().num_layers, std::vector<float>(files.config().hidden));
    decoder.observe_ffn([&](uint32_t layer, ops::Rows<const ops::Bf16> x) {
        widen_columns(std::span(x.data, x.num_rows * x.num_cols), ranges[layer]);
    });
    const size_t vocab_size = files.config().vocab_size;
    std::vector<double> surprises(text.tokens.size(), 0.0);
    for (size_t first = 0; first < text.tokens.size(); first += text.window) {
        const size_t count = text.window_tokens(first);
        std::vector<float> logits(count * vocab_size);
        decoder.reset();
        EXPECT_TRUE(decoder
                        .append(std::span(text.tokens).subspan(first, count),
                                ops::make_rows(logits.data(), count, vocab_size))
                        .ok());
        for (size_t i = 0; i + 1 < count; ++i) {
            double sum = 0;
            for (size_t v = 0; v < vocab_size; ++v) {
                sum += std::exp(double{logits[i * vocab_size + v]});
            }
            const auto next = static_cast<size_t>(text.tokens[first + i + 1]);
            surprises[first + i + 1] = std::log(sum) - double{logits[i * vocab_size + next]};
        }
    }
    return surprises;
}

// Goal: streaming changes nothing. Method: limits that allow one expert, a panel of the head and
// few rows at a time, several windows and the last one shorter. Oracle: LocalDecoder; the logits
// are the same bits, so only the sums of exponentials, in double, may differ.
void expect_streamed_as_whole(const model::ModelFiles& files, ops::Parallel& parallel) {
    const test::TemporaryDirectory scratch;
    const StreamedText text{.tokens = some_tokens(331), .window = 150};
    ChannelRanges expected_ranges;
    const auto expected = local_surprises(files, text, expected_ranges);
    const StreamedLimits tiny{.expert_bytes = 1, .head_bytes = 1, .row_bytes = 3000};
    for (const StreamedLimits& limits : {StreamedLimits(), tiny}) {
        auto decoder =
            StreamedDecoder::create(files, text, scratch.path(), parallel, limits).value();
        ChannelRanges ranges;
        double share = 0;
        const auto surprises = decoder.surprises([&](double now) { share = now; }, &ranges);
        ASSERT_TRUE(surprises.ok()) << surprises.error().message;
        EXPECT_EQ(share, 1);
        EXPECT_EQ(ranges, expected_ranges);
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_NEAR(surprises.value()[i], expected[i], 1e-12) << i;
        }
    }
}

TEST(StreamedDecoder, GivesWhatTheWholeModelGives) {
    for (const auto& wanted :
         {model::QuantisationConfig{},
          model::QuantisationConfig{.experts = ops::WeightFormat::kInt4Group32},
          kSmoothInt8}) {
        const test::TemporaryDirectory source;
        const test::TemporaryDirectory target;
        nlohmann::json config = model::small_config();
        config["tie_word_embeddings"] = wanted.smooth;
        model::CheckpointBuilder(config).write(source.path());
        threads::ThreadPool threads(2);
        std::string path = source.path();
        if (wanted != model::QuantisationConfig{}) {
            path = target.path("model");
            ASSERT_TRUE(quantise(source.path(), path, wanted, threads).ok());
        }
        model::ModelFiles files = model::ModelFiles::open(path).value();
        for (const auto residual : {model::ResidualType::kBf16, model::ResidualType::kFp32}) {
            SCOPED_TRACE(model::name_of(residual));
            files.set_residual(residual);
            expect_streamed_as_whole(files, threads);
        }
    }
}

// exp of the mean surprise of a text's tokens but the first, behind what prompts begin with, by a
// decoder that holds the whole model.
double local_perplexity(const TextSample& text,
                        model::ResidualType residual,
                        ChannelRanges& ranges) {
    model::ModelFiles files = model::ModelFiles::open(AFD_DEMO_MODEL).value();
    files.set_residual(residual);
    std::vector<int32_t> tokens = text.start;
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    const auto surprises =
        local_surprises(files, {.tokens = tokens, .window = tokens.size()}, ranges);
    const auto first = surprises.begin() + static_cast<std::ptrdiff_t>(text.start.size()) + 1;
    const double total = std::accumulate(first, surprises.end(), 0.0);
    return std::exp(total / static_cast<double>(text.tokens.size() - 1));
}

TextSample demo_sample(const std::string& path) {
    auto tokenizer = model::Tokenizer::load(AFD_DEMO_MODEL);
    const auto config = model::load_model_config(AFD_DEMO_MODEL);
    return TextSample::read(path, tokenizer.value(), config.value()).value();
}

// Goal: what --validate says and --smooth sees is what the model is served with: the residual
// stream, and the token that every prompt begins with. Oracle: LocalDecoder with either kind of
// residual stream; the ranges are the same bits.
TEST(Perplexity, IsOfWhatIsServed) {
    const test::TemporaryDirectory scratch;
    const TextSample text = demo_sample(
        scratch.write("text", "Once upon a time there was a little dog who liked to dig."));
    ASSERT_EQ(text.start.size(), 1u);
    ops::SerialParallel serial;
    ChannelRanges ranges;
    const auto measured = measure_perplexity(AFD_DEMO_MODEL,
                                             text,
                                             scratch.path(),
                                             serial,
                                             [](double) {},
                                             {.ranges = &ranges, .on_cache = {}});
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    EXPECT_EQ(measured.value().num_scored, text.tokens.size() - 1);
    ChannelRanges expected;
    EXPECT_NEAR(
        measured.value().value, local_perplexity(text, model::ResidualType::kFp32, expected), 1e-9);
    EXPECT_EQ(ranges, expected);
    // Another class, and another input, which a text as short as this tells apart.
    ChannelRanges ignored;
    EXPECT_GT(std::fabs(measured.value().value -
                        local_perplexity(text, model::ResidualType::kBf16, ignored)),
              1e-6);
    TextSample bare = text;
    bare.start.clear();
    EXPECT_GT(std::fabs(measured.value().value -
                        local_perplexity(bare, model::ResidualType::kFp32, ignored)),
              1e-6);
}

// Goal: every window begins so, not only the first. Method: a text of two windows and a bit, in a
// short context. Oracle: each window measured as a text of its own.
TEST(Perplexity, EveryWindowBeginsAsAPromptDoes) {
    const test::TemporaryDirectory directory;
    nlohmann::json config = model::small_config();
    config["max_position_embeddings"] = 66;
    model::CheckpointBuilder(config).write(directory.path());
    constexpr size_t kWindow = 64;
    TextSample text{
        .path = "text", .hash = "", .start = {5, 7}, .tokens = some_tokens(150), .token_bytes = {}};
    text.token_bytes.assign(text.tokens.size(), 3);
    ops::SerialParallel serial;
    const auto measure = [&](const TextSample& sample) {
        return measure_perplexity(directory.path(), sample, directory.path(), serial, [](double) {})
            .value();
    };
    const Perplexity whole = measure(text);
    EXPECT_EQ(whole.window, kWindow);
    EXPECT_EQ(whole.num_scored, text.tokens.size() - 3);
    EXPECT_NEAR(whole.bits_per_byte, std::log2(whole.value) / 3, 1e-9);
    double total = 0;
    for (size_t first = 0; first < text.tokens.size(); first += kWindow) {
        const size_t count = std::min(kWindow, text.tokens.size() - first);
        TextSample part = text;
        const auto begin = text.tokens.begin() + static_cast<std::ptrdiff_t>(first);
        part.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
        const Perplexity of_part = measure(part);
        total += std::log(of_part.value) * static_cast<double>(of_part.num_scored);
    }
    EXPECT_NEAR(std::log(whole.value), total / static_cast<double>(whole.num_scored), 1e-9);
}

// Goal: a model that overflows is named, and no number is told for it. Method: a weight of the head
// that is infinite.
TEST(Perplexity, OfAModelWithAnInfiniteLogitIsNone) {
    const test::TemporaryDirectory directory;
    model::CheckpointBuilder builder(model::small_config());
    builder.tensor(model::kHeadTensor)[5] = ops::from_float(std::numeric_limits<float>::infinity());
    builder.write(directory.path());
    const TextSample text{.path = "text",
                          .hash = "",
                          .start = {5},
                          .tokens = some_tokens(40),
                          .token_bytes = std::vector<uint32_t>(40, 3)};
    ops::SerialParallel serial;
    const auto measured =
        measure_perplexity(directory.path(), text, directory.path(), serial, [](double) {});
    ASSERT_FALSE(measured.ok()) << measured.value().value;
    EXPECT_EQ(measured.error().code, Code::kInternal);
    EXPECT_EQ(measured.error().message,
              "the logits in window 0 of the text, at position 0, are not finite; the model's "
              "weights or activations overflow");
}

}  // namespace
}  // namespace afd::tools
