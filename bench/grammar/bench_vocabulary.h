// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vocabularies to measure masks with.

#include <cstddef>
#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::bench {

// Token 0 ends a text; then the 256 bytes, pieces of JSON and of code, words of two and three
// Chinese characters (a fifth of all), and the most frequent pieces of `text`, as a byte-pair
// encoding would find them; if they are not enough, these with endings.
std::vector<std::string> made_vocabulary(const std::string& text, size_t size);

// Of the tokenizer in a model's directory, with its first special token for the end.
Result<std::vector<std::string>> vocabulary_of(const std::string& directory);

}  // namespace afd::bench
