// SPDX-License-Identifier: Apache-2.0
#pragma once

// KeptExperts: the packed experts that workers of this host have mapped from the weight cache,
// still mapped when these workers are gone. That holds the files themselves: their inodes, and the
// room on the disk of those that are deleted. It does not hold what memory has of them: no block is
// touched here, and the kernel keeps or takes those pages as it does of any file that was read.
// What it has taken the next worker reads again.

#include <cstddef>
#include <vector>

#include "model/family/model_files.h"
#include "model/weight_cache/sealed_file.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class KeptExperts {
  public:
    // A worker of this Welcome is ready: the files that it can have mapped are kept, in place of
    // those of before. Nothing changes where it maps no experts. What cannot be mapped is not kept,
    // which the worker says of itself. `files`: of its model.
    void keep(control::Role role, const control::Welcome& welcome, const model::ModelFiles& files);

    // One for each layer that has experts here.
    size_t num_files() const { return files_.size(); }

  private:
    std::vector<model::SealedFile> files_;
};

}  // namespace afd::daemon
