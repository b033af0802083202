// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a data thread is given for an Admit of afdd.

#include <memory>

#include "daemon/control/worker_events.h"
#include "model/grammar/grammar_cache.h"
#include "model/grammar/vocabulary_trie.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

using Vocabulary = std::shared_ptr<const model::VocabularyTrie>;

// With the constraint of its response_format, if it has one, behind the tokens that were sent
// before a replay. Errors: kFailedPrecondition: a response_format without a vocabulary. kInternal:
// a token of a replay that the format forbids. Those of GrammarCache::grammar().
Result<std::unique_ptr<SequenceRequest>> to_request(const control::Admit& admit,
                                                    const Vocabulary& vocabulary,
                                                    model::GrammarCache& grammars);

}  // namespace afd::daemon
