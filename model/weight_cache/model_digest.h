// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelDigest: one number of all that a model's weights and configuration are: every byte of every
// tensor of the text model, which ModelFiles::identity() only samples. Two machines with equal
// digests have files of the same bits, however these are cut into shards; of experts that were
// packed from other files before, and of the tokenizer, it says nothing. It finds accidents, and is
// no defence against someone who wants a collision (model/weight_cache/checksum.h).
//
// Reading it all takes as long as the disk does, so the result is kept in the weight cache, under a
// name made of what the files are: a path, a size, an inode and times of each. Where it cannot be
// kept it is computed again.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "model/safetensors/tensor_files.h"
#include "proto/status.h"

namespace afd::model {

class ModelDigest {
  public:
    // REQUIRES: `tensors` outlives it. `cache_directory`: that of a WeightCache; empty: off.
    ModelDigest(const TensorFiles& tensors, std::string config_text, std::string cache_directory);

    // Returns 16 hexadecimal digits, which `num_threads` threads read and compute, this one
    // included. Call it once. Errors: those of SafetensorsFile::read(); kCancelled after stop().
    Result<std::string> compute(unsigned num_threads);

    // From any thread: compute() ends within the time of one read.
    void stop() {
        // Relaxed: partner is is_stopped(), where a late look costs only a read.
        is_stopped_.store(true, std::memory_order_relaxed);
    }
    uint64_t bytes_read() const {
        // Relaxed: partner is the sum in read(); a number to be shown.
        return bytes_read_.load(std::memory_order_relaxed);
    }
    uint64_t total_bytes() const { return total_bytes_; }

    // After compute(): why the next start computes it again; empty if it does not.
    const std::string& why_not_kept() const { return why_not_kept_; }

  private:
    struct Piece;

    bool is_stopped() const {
        // Relaxed: partner is stop().
        return is_stopped_.load(std::memory_order_relaxed);
    }
    Result<std::string> stamps() const;
    std::vector<Piece> pieces() const;
    Result<> read(std::vector<Piece>& pieces, unsigned num_threads);
    uint64_t combine(const std::vector<Piece>& pieces) const;
    Result<std::string> digests_folder() const;
    Result<> keep(const std::string& stamps, uint64_t digest) const;

    const TensorFiles& tensors_;
    const std::string config_text_;
    const std::string cache_directory_;
    const uint64_t total_bytes_;
    std::atomic<uint64_t> bytes_read_{0};
    std::atomic<bool> is_stopped_{false};
    std::string why_not_kept_;
};

}  // namespace afd::model
