// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/perplexity.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>
#include <span>
#include <vector>

#include "model/decoder/local_decoder.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"

namespace afd {
namespace {

// Early tokens of a window have little before them, so perplexities of other windows cannot be
// compared with these.
constexpr uint32_t kWindowMax = 1024;
constexpr uint32_t kChunk = 128;

// -log softmax(logits)[token]
double surprise(std::span<const float> logits, int32_t token) {
    // Taken out first, so that no exp() overflows, whatever the logits.
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    return std::log(sum) + largest - static_cast<double>(logits[static_cast<size_t>(token)]);
}

// Sum over all tokens of the window but the first.
Result<double> window_surprise(model::LocalDecoder& decoder,
                               std::span<const int32_t> tokens,
                               std::vector<float>& logits,
                               size_t vocab_size) {
    double total = 0;
    decoder.reset();
    for (size_t done = 0; done + 1 < tokens.size();) {
        const size_t count = std::min<size_t>(kChunk, tokens.size() - 1 - done);
        AFD_TRY(decoder.append(tokens.subspan(done, count),
                               ops::make_rows(logits.data(), count, vocab_size)));
        for (size_t i = 0; i < count; ++i) {
            total += surprise(std::span(logits).subspan(i * vocab_size, vocab_size),
                              tokens[done + i + 1]);
        }
        done += count;
    }
    return total;
}

void widen_ranges(ops::Rows<const ops::Bf16> x, std::vector<float>& ranges) {
    for (size_t row = 0; row < x.num_rows; ++row) {
        for (size_t i = 0; i < x.num_cols; ++i) {
            ranges[i] = std::max(ranges[i], std::abs(ops::to_float(x.row(row)[i])));
        }
    }
}

Result<std::vector<uint32_t>> read_tokens(const std::string& path, model::Tokenizer& tokenizer) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
        return Error{Code::kNotFound,
                     path + ": cannot be read; --validate and --smooth take text files"};
    }
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    AFD_ASSIGN(std::vector<uint32_t> ids, tokenizer.encode(text));
    if (ids.size() >= 2) return ids;
    return Error{Code::kInvalidArgument,
                 path + ": has " + std::to_string(ids.size()) +
                     " tokens; perplexity needs at least 2, better some thousand"};
}

}  // namespace

Result<Perplexity> measure_perplexity(const std::string& model_directory,
                                      const std::string& text_file,
                                      const std::function<void(double)>& progress,
                                      ChannelRanges* ranges) {
    AFD_ASSIGN(model::Tokenizer tokenizer, model::Tokenizer::load(model_directory));
    AFD_ASSIGN(const std::vector<uint32_t> ids, read_tokens(text_file, tokenizer));
    AFD_ASSIGN(const model::ModelFiles files, model::ModelFiles::open(model_directory));
    const uint32_t window = std::min(kWindowMax, files.config().context_length);
    ops::SerialParallel serial;
    AFD_ASSIGN(model::LocalDecoder decoder,
               model::LocalDecoder::load(files, ops::best_numeric_class(), kChunk, window, serial));
    if (ranges != nullptr) {
        ranges->assign(files.config().num_layers, std::vector<float>(files.config().hidden));
        decoder.observe_ffn([ranges](uint32_t layer, ops::Rows<const ops::Bf16> x) {
            widen_ranges(x, (*ranges)[layer]);
        });
    }
    const size_t vocab_size = files.config().vocab_size;
    std::vector<float> logits(kChunk * vocab_size);
    const std::vector<int32_t> tokens(ids.begin(), ids.end());
    Perplexity result{.window = window};
    double total = 0;
    size_t num_bytes = 0;
    for (size_t first = 0; first + 1 < tokens.size(); first += window) {
        const auto part =
            std::span(tokens).subspan(first, std::min<size_t>(window, tokens.size() - first));
        AFD_ASSIGN(const double sum, window_surprise(decoder, part, logits, vocab_size));
        total += sum;
        result.num_scored += part.size() - 1;
        for (const int32_t token : part.subspan(1)) {
            num_bytes += tokenizer.token_bytes(static_cast<uint32_t>(token)).size();
        }
        progress(static_cast<double>(first + part.size()) / static_cast<double>(tokens.size()));
    }
    result.value = std::exp(total / static_cast<double>(result.num_scored));
    result.bits_per_byte = total / std::numbers::ln2 / static_cast<double>(num_bytes);
    return result;
}

}  // namespace afd
