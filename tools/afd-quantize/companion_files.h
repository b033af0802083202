// SPDX-License-Identifier: Apache-2.0
#pragma once

// CompanionFiles: what a checkpoint holds besides weights and config.json: the tokenizer, the chat
// template, the generation defaults, the licence. Read before the work, which may take hours: one
// that cannot be read shows at once, and what belongs to another revision, which comes meanwhile,
// does not come into the result.

#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::tools {

class CompanionFiles {
  public:
    // Those of `directory`. Errors: those of model::read_text_file() but for a file that is not
    // there.
    static Result<CompanionFiles> read(const std::string& directory);

    // As new files: with the source's mode an interrupted run could not replace one that is
    // read-only. Errors: those of model::WholeFile.
    Result<> write(const std::string& directory) const;

  private:
    struct File {
        std::string name;
        std::string text;
    };
    std::vector<File> files_;
};

}  // namespace afd::tools
