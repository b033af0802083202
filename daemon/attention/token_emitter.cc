// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/token_emitter.h"

#include <algorithm>
#include <cstdio>

#include "proto/failure.h"

namespace afd::daemon {
namespace {

Error no_token_left() {
    return unimplemented(
        "response_format is not supported so far: no token of the vocabulary can go on; the schema "
        "needs more than 64 objects and lists within each other, or has too many ways at once");
}

}  // namespace

TokenEmitter::TokenEmitter(const model::EmbeddingHead& head,
                           const model::ModelConfig& config,
                           ops::Parallel& parallel,
                           WorkerPort& port,
                           Metrics& metrics)
    : head_(head),
      parallel_(parallel),
      port_(port),
      metrics_(metrics),
      samplers_(parallel.num_threads(), model::Sampler(config.vocab_size)),
      hidden_(config.hidden),
      vocab_size_(config.vocab_size),
      wide_rows_(config.residual == model::ResidualType::kFp32 ? size_t{kTileRows} * config.hidden
                                                               : 0),
      rows_(size_t{kTileRows} * config.hidden),
      // A tile instead of a row for each token of a batch: vocabularies are large, and a prompt
      // that reports log probabilities wants all of its rows.
      logits_(size_t{kTileRows} * config.vocab_size),
      chosen_(kTileRows, model::SampledToken{}),
      top_(kTileRows) {
    wanted_.reserve(kTileRows);
}

void TokenEmitter::emit(MicroBatch& micro_batch) {
    const uint32_t end = collect(micro_batch);
    if (!wanted_.empty()) run_tile(micro_batch, wanted_);
    micro_batch.num_emitted = end;
}

uint32_t TokenEmitter::collect(const MicroBatch& micro_batch) {
    wanted_.clear();
    uint32_t first = 0;
    for (const BatchPiece& piece : micro_batch.pieces()) {
        const SequenceRequest& request = *piece.sequence->request;
        const uint32_t end = first + piece.num_rows;
        for (uint32_t row = std::max(first, micro_batch.num_emitted); row < end; ++row) {
            const uint32_t position = piece.first_position + (row - first);
            // The last row of what is known so far samples the next token; the rows before it are
            // prompt.
            const bool is_last = position + 1 == piece.sequence->num_tokens();
            const bool is_prompt = position + 1 < request.num_prompt_tokens;
            if (piece.sequence->is_ending) continue;
            if (!is_last && !(is_prompt && request.prompt_logprobs)) continue;
            if (wanted_.size() == kTileRows) return row;
            wanted_.push_back({piece.sequence, row, position, is_last});
        }
        first = end;
    }
    return first;
}

void TokenEmitter::run_tile(MicroBatch& micro_batch, std::span<const Wanted> tile) {
    const model::Residual residual = micro_batch.residual();
    const auto rows = ops::make_rows(rows_.data(), tile.size(), hidden_);
    const auto wide = ops::make_rows(wide_rows_.data(), tile.size(), hidden_);
    // Collected, so that the head multiplies no row that nobody asked for.
    for (size_t i = 0; i < tile.size(); ++i) {
        if (residual.is_fp32()) {
            std::copy_n(residual.fp32().row(tile[i].row), hidden_, wide.row(i));
        } else {
            std::copy_n(residual.bf16().row(tile[i].row), hidden_, rows.row(i));
        }
    }
    head_.head(residual.is_fp32() ? model::Residual(wide) : model::Residual(rows),
               rows,
               ops::make_rows(logits_.data(), tile.size(), vocab_size_),
               parallel_);
    parallel_.run(tile.size(), [&](size_t i, unsigned thread) {
        // A sampler for each thread, for its scratch only: a draw depends on seed, position and
        // choice, never on the thread.
        chosen_[i] =
            choose(tile[i], {&logits_[i * vocab_size_], vocab_size_}, samplers_[thread], top_[i]);
    });
    for (size_t i = 0; i < tile.size(); ++i) {
        Sequence& sequence = *tile[i].sequence;
        // An earlier row of this tile may have ended it.
        if (sequence.is_ending) continue;
        if (!chosen_[i].ok()) {
            mark_ending(sequence, chosen_[i].error().code, chosen_[i].error().message.c_str());
        } else if (tile[i].is_last) {
            take_sample(sequence, chosen_[i].value(), top_[i]);
        } else {
            report_prompt_logprob(sequence, chosen_[i].value(), top_[i]);
        }
    }
}

Result<model::SampledToken> TokenEmitter::choose(const Wanted& wanted,
                                                 std::span<const float> logits,
                                                 model::Sampler& sampler,
                                                 TopTokens& top) {
    const SequenceRequest& request = *wanted.sequence->request;
    const uint32_t next = wanted.position + 1;
    if (wanted.is_last) {
        // The history is made of the tokens alone: after a replay these are the same, and so is
        // what is sampled.
        model::TokenHistory history{.tokens = request.tokens,
                                    .num_prompt_tokens = request.num_prompt_tokens};
        bool may_ban = true;
        if (request.constraint != nullptr) {
            history.allowed = request.constraint->allowed();
            if (request.constraint->is_stuck()) return no_token_left();
            may_ban = !request.constraint->allows_only(request.stop_ids);
        }
        if (may_ban && next - request.num_prompt_tokens < request.min_tokens) {
            history.banned = request.stop_ids;
        }
        return sampler.sample(logits,
                              request.sampling,
                              next,
                              history,
                              std::span(top).first(request.num_top_logprobs));
    }
    float logprob = 0;
    AFD_ASSIGN(logprob,
               sampler.logprob(
                   logits, request.tokens[next], std::span(top).first(request.num_top_logprobs)));
    return model::SampledToken{next, logprob};
}

void TokenEmitter::take_sample(Sequence& sequence,
                               const model::SampledToken& token,
                               const TopTokens& top) {
    SequenceRequest& request = *sequence.request;
    request.tokens.push_back(token.id);
    if (request.constraint != nullptr) {
        AFD_ASSERT(request.constraint->advance(token.id),
                   "token %u of sequence %llu was sampled against its response_format",
                   token.id,
                   static_cast<unsigned long long>(request.sequence_id));
    }
    WorkerEvent event{.kind = WorkerEvent::Kind::kToken,
                      .token = token.id,
                      .sequence_id = request.sequence_id,
                      .logprob = token.logprob};
    if (request.num_top_logprobs > 0) event.set_top(std::span(top).first(request.num_top_logprobs));
    AFD_ASSERT(port_.push(std::move(event)),
               "no room for the token of sequence %llu",
               static_cast<unsigned long long>(request.sequence_id));
    metrics_.add(Counter::kTokens, 1);

    const bool is_stop = std::find(request.stop_ids.begin(), request.stop_ids.end(), token.id) !=
                         request.stop_ids.end();
    if (is_stop || sequence.num_tokens() >= request.max_total_tokens) {
        mark_ending(sequence, Code::kOk, "");
    }
}

void TokenEmitter::report_prompt_logprob(const Sequence& sequence,
                                         const model::SampledToken& token,
                                         const TopTokens& top) {
    const SequenceRequest& request = *sequence.request;
    WorkerEvent event{.kind = WorkerEvent::Kind::kPromptLogprob,
                      .token = token.id,
                      .sequence_id = request.sequence_id,
                      .logprob = token.logprob};
    if (request.num_top_logprobs > 0) event.set_top(std::span(top).first(request.num_top_logprobs));
    AFD_ASSERT(port_.push(std::move(event)),
               "no room for a prompt logprob of sequence %llu",
               static_cast<unsigned long long>(request.sequence_id));
}

void mark_ending(Sequence& sequence, Code code, const char* text) {
    // The first reason counts; what follows is usually its consequence.
    if (sequence.is_ending) return;
    sequence.is_ending = true;
    sequence.end_code = code;
    std::snprintf(sequence.end_text, sizeof(sequence.end_text), "%s", text);
}

}  // namespace afd::daemon
