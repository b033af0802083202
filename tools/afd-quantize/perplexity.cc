// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/perplexity.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>
#include <vector>

#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"

namespace afd {
namespace {

// Early tokens of a window have little before them, so perplexities of other windows cannot be
// compared with these.
constexpr uint32_t kWindowMax = 1024;

Result<std::vector<uint32_t>> read_tokens(const std::string& path, model::Tokenizer& tokenizer) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
        return Error{
            Code::kNotFound,
            path + ": cannot be read; --validate, --smooth and --kv-scales take text files"};
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
                                      const std::string& scratch,
                                      ops::Parallel& parallel,
                                      const std::function<void(double)>& progress,
                                      const PerplexityOptions& options) {
    AFD_ASSIGN(model::Tokenizer tokenizer, model::Tokenizer::load(model_directory));
    AFD_ASSIGN(const std::vector<uint32_t> ids, read_tokens(text_file, tokenizer));
    AFD_ASSIGN(model::ModelFiles files, model::ModelFiles::open(model_directory, options.kv));
    files.set_residual(model::kServingResidual);
    AFD_TRY(files.set_int4_rows(options.int4_rows));
    const model::ModelConfig& config = files.config();
    const auto beyond =
        std::ranges::find_if(ids, [&](uint32_t id) { return id >= config.vocab_size; });
    if (beyond != ids.end()) {
        return Error{Code::kDataLoss,
                     model_directory + ": the tokenizer gives token " + std::to_string(*beyond) +
                         "; config.json says vocab_size " + std::to_string(config.vocab_size)};
    }
    const StreamedText text{.tokens = {ids.begin(), ids.end()},
                            .window = std::min(kWindowMax, config.context_length)};
    AFD_ASSIGN(StreamedDecoder decoder, StreamedDecoder::create(files, text, scratch, parallel));
    decoder.observe_cache(options.on_cache);
    AFD_ASSIGN(const std::vector<double> surprises, decoder.surprises(progress, options.ranges));
    Perplexity result{.window = text.window};
    double total = 0;
    size_t num_bytes = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (i % text.window == 0) continue;
        total += surprises[i];
        ++result.num_scored;
        num_bytes += tokenizer.token_bytes(ids[i]).size();
    }
    result.value = std::exp(total / static_cast<double>(result.num_scored));
    result.bits_per_byte = total / std::numbers::ln2 / static_cast<double>(num_bytes);
    return result;
}

}  // namespace afd
