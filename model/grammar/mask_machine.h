// SPDX-License-Identifier: Apache-2.0
#pragma once

// MaskMachine: the machine of one grammar with the masks of its states over one vocabulary, for all
// texts that are at one of them.
//
// A mask has bit id % 64 of word id / 64 for token id that may come next. The first text at a state
// computes it: it walks the vocabulary's trie and leaves a branch at the first byte that the
// grammar does not want. Within a string, which allows nearly everything, the tokens of plain text
// are known before, by their characters, and are not walked over. Whoever comes to the state later,
// in whatever request, finds it. States that differ only in how much may still come of what is
// counted have one walk between them: each looks for itself after the long tokens only, with which
// the counts may come to an end. States of the same tokens have one mask.
//
// Nothing is given up as long as the machine lives, so masks stay where they are. What does not fit
// its limits is missed: SharedGrammar says what comes then.
//
// A mask whose walk is more work than GrammarAutomaton::kWalkWorkMax is empty, in every machine:
// what a step was found to cost counts for who finds it known as for who came first. So a mask
// takes about 10 ms of a core at most, as much again in each further machine that is asked because
// one had no room (SharedGrammar), and a text ends where it would take more.
//
// Allocates when it comes to a state for the first time. Any thread: a lock is held meanwhile, by a
// walk of the trie for longest.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/grammar/grammar_automaton.h"
#include "model/grammar/schema/byte_program.h"
#include "model/grammar/vocabulary_trie.h"

namespace afd::model {

struct TokenMask {
    std::span<const uint64_t> words = {};
    size_t num_tokens = 0;  // That may come.
};

class MaskMachine {
  public:
    using State = GrammarAutomaton::State;

    // What the masks take at most; of 150,000 tokens 19 KiB each.
    static constexpr size_t kMaskBytesMax = size_t{4} << 20;

    // `end_ids`: tokens that end the text, each once. REQUIRES: as GrammarAutomaton; end_ids below
    // the size of the vocabulary; mask_bytes_max is that of one mask at least.
    MaskMachine(std::shared_ptr<const ByteProgram> program,
                std::shared_ptr<const VocabularyTrie> vocabulary,
                std::vector<uint32_t> end_ids,
                size_t mask_bytes_max);

    State start() const { return start_; }
    // Valid as long as the machine. Of no tokens: nothing may come, or it is too much work to say
    // what. None: missed.
    std::optional<TokenMask> mask(State state);
    // The state behind `bytes`; kDead: they may not come. None: missed.
    std::optional<State> after(State state, std::string_view bytes);
    bool may_end(State state);

    // The same place of a text in another machine of the same grammar. None: missed.
    GrammarAutomaton::Position position(State state);
    std::optional<State> adopt(const GrammarAutomaton::Position& position);

    // Of all that it has allocated, about.
    size_t num_bytes();
    // Walks over the vocabulary.
    size_t num_walks();
    // GrammarAutomaton::num_visits().
    size_t num_visits();

  private:
    // The index of the mask of a state that has none. None: missed.
    std::optional<size_t> make(State state);
    // Makes scratch_ the mask of `state`, or one of its kind of it. Each is a walk.
    void fill(State state);
    void fill_like(State state, size_t index);
    void fill_ends(State state);
    void fill_plain(size_t num_characters);
    void fill_from_trie(State state, bool has_plain_text);
    // The index of a mask like scratch_. None: no room.
    std::optional<size_t> keep();
    std::span<const uint64_t> words_of(size_t index) const;

    const std::shared_ptr<const VocabularyTrie> vocabulary_;
    const std::vector<uint32_t> end_ids_;
    const size_t words_;      // Of a mask.
    const size_t masks_max_;  // Different ones.

    std::mutex mutex_;  // Of all below.
    GrammarAutomaton automaton_;
    const State start_;
    std::vector<State> path_;        // Of fill(): the state behind each byte of a token.
    std::vector<uint64_t> scratch_;  // Of fill(): the mask.
    std::vector<std::unique_ptr<uint64_t[]>> masks_;
    std::vector<size_t> mask_sizes_;                      // Tokens that may come.
    std::unordered_multimap<size_t, size_t> mask_index_;  // By what is in it.
    std::unordered_map<State, size_t> state_masks_;
    struct KindMask {
        size_t index = 0;
        size_t work = 0;  // Of the walk.
    };
    std::unordered_map<GrammarAutomaton::Kind, KindMask> kind_masks_;
    size_t num_walks_ = 0;
};

}  // namespace afd::model
