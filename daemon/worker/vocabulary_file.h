// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes of the vocabulary, from afdd, which has the tokenizer, to the attention workers, which
// need them for requests with a response_format.
//
// A memory file with the image of a VocabularyTrie, sealed against every change, writing included:
// so what was checked stays as it was checked, and all workers of an instance read the same memory.
// Its descriptor comes with the Welcome, among the segments and under the name below, though it has
// no name in /dev/shm.

#include <memory>
#include <string>
#include <string_view>

#include "daemon/control/worker_control.h"
#include "daemon/loop/unique_fd.h"
#include "model/grammar/vocabulary_trie.h"
#include "proto/status.h"

namespace afd::daemon {

// "<prefix>-vocabulary".
std::string vocabulary_name(std::string_view segment_prefix);

// Errors: kResourceExhausted: no memory or descriptor for it; kUnavailable.
Result<UniqueFd> create_vocabulary_file(const std::string& name, const model::VocabularyTrie& trie);

// Maps the file of `descriptor`, which stays the caller's; `name` is for messages.
// Errors: kPermissionDenied: it could still be changed; kDataLoss: it is no such image.
Result<std::shared_ptr<const model::VocabularyTrie>> read_vocabulary_file(int descriptor,
                                                                          const std::string& name);

// The vocabulary that came with the Welcome; null: none did. Errors: as read_vocabulary_file();
// kFailedPrecondition: it has another number of tokens than the model.
Result<std::shared_ptr<const model::VocabularyTrie>> open_vocabulary(const WorkerControl& control,
                                                                     uint32_t vocab_size);

}  // namespace afd::daemon
