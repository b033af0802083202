// SPDX-License-Identifier: Apache-2.0
#pragma once

// The real afdctl, run to its end against a mock.

#include <string>
#include <vector>

#include "tests/clients/mock_afdd.h"
#include "tests/clients/program.h"

namespace afd::test {

inline ProgramResult afdctl(const MockAfdd& server,
                            std::vector<std::string> arguments,
                            ProgramOptions options = {}) {
    options.environment.push_back("XDG_RUNTIME_DIR=" + server.directory());
    arguments.insert(arguments.begin(), AFDCTL);
    return run_program(arguments, options);
}

// An answer of one chunk for each word.
inline MockAnswer story(const std::vector<std::string>& words) {
    MockAnswer answer;
    for (const std::string& word : words) answer.chunks.push_back({milliseconds(2), 1, word});
    return answer;
}

}  // namespace afd::test
