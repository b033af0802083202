// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenEmitter: the end of a step: final norm, head and sampling of those rows of a micro-batch
// that somebody wants logits of, and the events that tell the control thread.
//
// A row at position p yields the token at p + 1: a sample, where p is the last known position; the
// logprob of the prompt's own token, where the request asks for prompt logprobs. Rows go through
// the head in tiles, a tile a call: so the logits need little memory however large the micro-batch,
// and the loop looks at its other rows and its commands in between.
// Data thread only; nothing here allocates after construction.

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/attention/micro_batch.h"
#include "daemon/control/worker_port.h"
#include "daemon/metrics/metrics.h"
#include "model/decoder/embedding_head.h"
#include "model/sampling/sampler.h"
#include "ops/tensor/parallel.h"

namespace afd::daemon {

class TokenEmitter {
  public:
    // All outlive the object.
    TokenEmitter(const model::EmbeddingHead& head,
                 const model::ModelConfig& config,
                 ops::Parallel& parallel,
                 WorkerPort& port,
                 Metrics& metrics);

    // Rows of one tile: amortises the pass over lm_head, and its logits stay small.
    static constexpr uint32_t kTileRows = 32;

    // The next tile of `micro_batch`: up to kTileRows wanted rows from num_emitted on, which it
    // moves behind them. Samples for each sequence whose last known token is among them, appends
    // the token and marks the sequence as ending when it is over (stop token, length, or an error
    // in the logits). Sequences that are ending already yield nothing.
    // REQUIRES: the batcher kept room in the port for the events.
    void emit(MicroBatch& micro_batch);

  private:
    using TopTokens = std::array<model::TokenLogprob, model::kTopLogprobsMax>;

    struct Wanted {
        Sequence* sequence = nullptr;
        uint32_t row = 0;
        uint32_t position = 0;
        bool is_last = false;  // Of the known tokens: the next is sampled.
    };

    // Returns the row behind the tile.
    uint32_t collect(const MicroBatch& micro_batch);
    void run_tile(MicroBatch& micro_batch, std::span<const Wanted> tile);
    // The sampled token, or position and logprob of the prompt's own one; with the most likely ones
    // that the request wants in `top`. Any thread: only reads the sequence, but for its constraint,
    // which one row of a tile at most asks.
    static Result<model::SampledToken> choose(const Wanted& wanted,
                                              std::span<const float> logits,
                                              model::Sampler& sampler,
                                              TopTokens& top);
    void take_sample(Sequence& sequence, const model::SampledToken& token, const TopTokens& top);
    void report_prompt_logprob(const Sequence& sequence,
                               const model::SampledToken& token,
                               const TopTokens& top);

    const model::EmbeddingHead& head_;
    ops::Parallel& parallel_;
    WorkerPort& port_;
    Metrics& metrics_;
    std::vector<model::Sampler> samplers_;  // One for each thread.
    const uint32_t hidden_;
    const uint32_t vocab_size_;
    std::vector<Wanted> wanted_;
    std::vector<float> wide_rows_;                     // [kTileRows, hidden] of a residual in fp32
    std::vector<ops::Bf16> rows_;                      // [kTileRows, hidden]
    std::vector<float> logits_;                        // [kTileRows, vocab_size]
    std::vector<Result<model::SampledToken>> chosen_;  // [kTileRows]
    std::vector<TopTokens> top_;                       // [kTileRows]
};

// Marks `sequence` as ending; the first reason counts. `text` may be empty.
void mark_ending(Sequence& sequence, Code code, const char* text);

}  // namespace afd::daemon
