// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/request/output_text.h"

#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

constexpr int kStopsMax = 16;
constexpr size_t kStopBytesMax = 256;

}  // namespace

Result<> OutputText::check(const client::Generate& generate, const model::Tokenizer* tokenizer) {
    if (generate.stop().empty()) return {};
    if (tokenizer == nullptr) {
        return invalid_argument(
            "this model has no tokenizer, so there is no text for stop to end: use stop_token_ids");
    }
    if (generate.stop_size() > kStopsMax) {
        return invalid_argument("stop has {} strings: at most {} are taken",
                                with(generate.stop_size(), kStopsMax));
    }
    for (int i = 0; i < generate.stop_size(); ++i) {
        const std::string& stop = generate.stop(i);
        if (stop.empty() || stop.size() > kStopBytesMax) {
            return invalid_argument("stop[{}] has {} bytes: it must have 1 to {}",
                                    with(i, stop.size(), kStopBytesMax));
        }
        if (!model::is_valid_utf8(stop)) {
            return invalid_argument("stop[{}] is not valid UTF-8", with(i));
        }
    }
    return {};
}

OutputText::OutputText(const client::Generate& generate,
                       std::span<const uint32_t> prompt,
                       const model::Tokenizer* tokenizer)
    : stops_({generate.stop().begin(), generate.stop().end()},
             generate.include_stop_str_in_output()),
      min_tokens_(generate.min_tokens()) {
    if (tokenizer == nullptr) return;
    decoder_.emplace(*tokenizer, generate.keep_special_tokens());
    if (!generate.begins_text()) decoder_->follow(prompt);
}

std::string OutputText::append(uint32_t token, uint32_t num_tokens) {
    if (!decoder_) return {};
    may_end_ = num_tokens > min_tokens_;
    return searched(decoder_->append(token));
}

std::string OutputText::finish() {
    if (!decoder_) return {};
    std::string certain = searched(decoder_->finish());
    certain += stops_.finish();
    return certain;
}

std::string OutputText::searched(std::string_view text) {
    return may_end_ ? stops_.append(text) : stops_.append_unended(text);
}

}  // namespace afd::daemon
