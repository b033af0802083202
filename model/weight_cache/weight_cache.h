// SPDX-License-Identifier: Apache-2.0
#pragma once

// WeightCache: the directory in which packed weights are kept between starts, one folder per model,
// numeric class and weight format, one sealed file per layer (model/weight_cache/sealed_file.h).
// One more has the digests of whole models (model/weight_cache/model_digest.h).
//
// The directory and its folders belong to this user and nobody else may write them (checked): what
// is mapped from there is never truncated by another. Files may be removed at any time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "model/weight_cache/file_lock.h"
#include "model/weight_cache/sealed_file.h"
#include "proto/status.h"

namespace afd::model {

// What became of the layers of one load; the texts are complete log lines.
struct WeightCacheReport {
    size_t num_mapped = 0;   // Layers that were there already.
    size_t num_written = 0;  // Layers that this process packed for everybody.
    size_t num_private = 0;  // Layers in memory of this process alone.
    size_t mapped_bytes = 0;
    std::string warning;  // The first problem; empty if there was none.
};

class WeightCache {
  public:
    // Off: nothing is kept.
    WeightCache() = default;

    // Uses `directory`, created with its parents (0700) where it is missing; empty: off.
    // Errors: kPermissionDenied (another's, or writable for others: says how to mend it),
    // kInvalidArgument (not a directory), and the others of file_error_code().
    static Result<WeightCache> open(const std::string& directory);

    // Whether open() would succeed with a directory. Creates nothing.
    static bool is_usable(const std::string& directory);

    bool is_on() const { return !directory_.empty(); }
    const std::string& directory() const { return directory_; }

    // The folder of one model and layout, created where it is missing. Errors: as open().
    Result<std::string> folder(const std::string& name) const;

  private:
    std::string directory_;
};

// $XDG_CACHE_HOME/afd, else $HOME/.cache/afd; empty if neither is an absolute path.
std::string default_weight_cache_directory();

}  // namespace afd::model
