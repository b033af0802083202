// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenConstraint: which tokens may come next in one request whose text must follow a grammar.
//
// A token may come if the text with its bytes can still become one that the grammar allows, in
// whatever tokens; an end token may come where the text may end. There is always one that may come
// unless the vocabulary lacks a byte, the schema nests too deep, or the mask goes beyond the limits
// of an empty machine or is too much work (grammar_automaton.h).
//
// It is a place in a SharedGrammar, which knows the masks of the places where any text was before.
// What it says depends on the grammar and the tokens so far only, so a request that is replayed has
// the same masks (promise 1). Allocates where no text has been. One thread at a time; those of one
// grammar may be used by several.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/grammar/shared_grammar.h"

namespace afd::model {

class TokenConstraint {
  public:
    explicit TokenConstraint(std::shared_ptr<SharedGrammar> grammar);
    // With a grammar of its own. REQUIRES: as SharedGrammar.
    TokenConstraint(std::shared_ptr<const ByteProgram> program,
                    std::shared_ptr<const VocabularyTrie> vocabulary,
                    std::vector<uint32_t> end_ids);

    // Bit id % 64 of word id / 64 says whether token id may come next. Valid until the next call of
    // a function that is not const. All zero: nothing may come, see above.
    std::span<const uint64_t> allowed();
    // Whether none may come, and whether none but `ids`. REQUIRES: allowed() was called here.
    bool is_stuck() const { return mask_.num_tokens == 0; }
    bool allows_only(std::span<const uint32_t> ids) const;

    // Goes on by `id`. False: it may not come here; nothing changes then. Behind an end token
    // nothing but end tokens may come.
    bool advance(uint32_t id);

    // Whether the text may end here.
    bool may_end() const { return place_.machine->may_end(place_.state); }

    static bool is_set(std::span<const uint64_t> mask, uint32_t id) {
        return (mask[id / 64] >> (id % 64) & 1) != 0;
    }

  private:
    std::shared_ptr<SharedGrammar> grammar_;
    SharedGrammar::Place place_;
    TokenMask mask_;              // What allowed() said.
    std::vector<uint64_t> none_;  // Where nothing may come.
    bool has_ended_ = false;
};

}  // namespace afd::model
