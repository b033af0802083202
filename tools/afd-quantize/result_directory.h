// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResultDirectory: the directory that a checkpoint is made in, and what is known of it while it is
// not finished: in the folder .unfinished which job it is, how far it got, and what was measured
// for it. So an interrupted job goes on where it was. The folder goes when the job is done.
//
// One process at a time; a file lock says whose it is.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/weight_cache/file_lock.h"
#include "proto/status.h"
#include "tools/afd-quantize/perplexity.h"

namespace afd::tools {

class ResultDirectory {
  public:
    // Makes the directory, or takes up the one that an interrupted `job` left. `job` is a line
    // that says what decides about the bytes of the result.
    // Errors: kAlreadyExists (it holds something else, another job's beginnings, or those of nobody
    // knows which; says which),
    // kFailedPrecondition (another process is at it), and those of model::file_error_code().
    static Result<ResultDirectory> open(const std::string& path, const std::string& job);

    const std::string& path() const { return path_; }
    // For files that nobody needs later.
    std::string scratch() const;

    // Units that are written and on the disk.
    uint64_t units_done() const { return units_done_; }
    Result<> set_units_done(uint64_t units);

    // What was measured by an earlier run on the text with this hash.
    std::optional<Perplexity> perplexity(const std::string& text_hash) const;
    Result<> keep(const std::string& text_hash, const Perplexity& perplexity);
    // Of a model with this many layers and channels. Nothing if there are none, or not that many.
    std::optional<ChannelRanges> ranges(size_t num_layers, size_t hidden) const;
    Result<> keep(const ChannelRanges& ranges);

    // The result is complete: when all of it is on the disk, removes the folder; whoever opens the
    // directory meanwhile is refused. Errors: kUnavailable, and those of model::file_error_code().
    Result<> finish();

  private:
    ResultDirectory(std::string path, std::string job, model::FileLock lock)
        : path_(std::move(path)), job_(std::move(job)), lock_(std::move(lock)) {}

    Result<> write_progress() const;

    std::string path_;
    std::string job_;
    model::FileLock lock_;
    uint64_t units_done_ = 0;
    std::string measured_text_;  // Hash of the text of perplexity_; empty: none.
    Perplexity perplexity_;
};

}  // namespace afd::tools
