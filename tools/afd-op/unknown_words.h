// SPDX-License-Identifier: Apache-2.0
#pragma once

// Words of a command line that afd-op does not know.

#include <optional>
#include <string>

#include "proto/status.h"

namespace CLI {
class App;
}

namespace afd::tools {

// kInvalidArgument with the commands there are, and the one that may have been meant, unless `word`
// is one; an empty word is one that is missing.
Result<> check_command(const CLI::App& app, const std::string& word);

// After a parse that failed: the first word that neither the program nor its command takes, an
// option first, since the value of an unknown one is a word of its own. With an option come those
// there are, and the one that may have been meant. Nothing if every word was taken.
std::optional<Error> unknown_word(const CLI::App& app);

}  // namespace afd::tools
