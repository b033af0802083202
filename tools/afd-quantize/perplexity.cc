// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "model/family/model_files.h"
#include "proto/failure.h"

namespace afd::tools {
namespace {

// Early tokens of a window have little before them, so perplexities of other windows cannot be
// compared with these.
constexpr size_t kWindowMax = 1024;

// Tokens of the text in a window.
size_t window_of(const TextSample& text, const model::ModelConfig& config) {
    return std::min(kWindowMax, config.context_length - text.start.size());
}

// Each window behind what prompts begin with: without it a model is out of what it was trained on.
StreamedText streamed(const TextSample& text, size_t window) {
    StreamedText out{.tokens = {}, .window = text.start.size() + window};
    for (size_t first = 0; first < text.tokens.size(); first += window) {
        const auto begin = text.tokens.begin() + static_cast<std::ptrdiff_t>(first);
        const size_t count = std::min(window, text.tokens.size() - first);
        out.tokens.insert(out.tokens.end(), text.start.begin(), text.start.end());
        out.tokens.insert(out.tokens.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return out;
}

}  // namespace

Result<Perplexity> measure_perplexity(const std::string& model_directory,
                                      const TextSample& text,
                                      const std::string& scratch,
                                      ops::Parallel& parallel,
                                      const std::function<void(double)>& progress,
                                      const PerplexityOptions& options) {
    AFD_ASSIGN(model::ModelFiles files, model::ModelFiles::open(model_directory, options.kv));
    files.set_residual(model::kServingResidual);
    AFD_TRY(files.set_int4_rows(options.int4_rows));
    const size_t window = window_of(text, files.config());
    const StreamedText windows = streamed(text, window);
    // Each layer's attention is loaded for itself, its table of positions included.
    files.limit_context(static_cast<uint32_t>(windows.window));
    AFD_ASSIGN(StreamedDecoder decoder, StreamedDecoder::create(files, windows, scratch, parallel));
    decoder.observe_cache(options.on_cache);
    AFD_ASSIGN(const std::vector<double> surprises, decoder.surprises(progress, options.ranges));
    Perplexity result{.window = window};
    double total = 0;
    size_t num_bytes = 0;
    for (size_t i = 0; i < text.tokens.size(); ++i) {
        if (i % window == 0) continue;
        total += surprises[i + (i / window + 1) * text.start.size()];
        ++result.num_scored;
        num_bytes += text.token_bytes[i];
    }
    result.value = std::exp(total / static_cast<double>(result.num_scored));
    if (!std::isfinite(result.value)) {
        return internal(
            "{}: the text costs {:.1f} nats a token on average, which has no perplexity; are these "
            "the model's weights?",
            with(model_directory, total / static_cast<double>(result.num_scored)));
    }
    result.bits_per_byte = total / std::numbers::ln2 / static_cast<double>(num_bytes);
    return result;
}

}  // namespace afd::tools
