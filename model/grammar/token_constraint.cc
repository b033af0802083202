// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/token_constraint.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

namespace afd::model {

TokenConstraint::TokenConstraint(std::shared_ptr<SharedGrammar> grammar)
    : grammar_(std::move(grammar)), place_(grammar_->start()) {}

TokenConstraint::TokenConstraint(std::shared_ptr<const ByteProgram> program,
                                 std::shared_ptr<const VocabularyTrie> vocabulary,
                                 std::vector<uint32_t> end_ids)
    : TokenConstraint(std::make_shared<SharedGrammar>(
          std::move(program), std::move(vocabulary), std::move(end_ids))) {}

std::span<const uint64_t> TokenConstraint::allowed() {
    // What follows an end token is never read: it may be anything that ends a text.
    const auto mask =
        grammar_->ask(place_, [](MaskMachine& machine, auto state) { return machine.mask(state); });
    if (mask) {
        mask_ = *mask;
    } else {
        none_.assign((grammar_->vocabulary().vocab_size() + 63) / 64, 0);
        mask_ = {.words = none_};
    }
    return mask_.words;
}

bool TokenConstraint::allows_only(std::span<const uint32_t> ids) const {
    if (mask_.num_tokens > ids.size()) return false;
    for (size_t word = 0; word < mask_.words.size(); ++word) {
        for (uint64_t rest = mask_.words[word]; rest != 0; rest &= rest - 1) {
            const auto id = static_cast<uint32_t>(64 * word + std::countr_zero(rest));
            if (std::find(ids.begin(), ids.end(), id) == ids.end()) return false;
        }
    }
    return true;
}

bool TokenConstraint::advance(uint32_t id) {
    if (grammar_->ends_text(id)) {
        if (!may_end()) return false;
        has_ended_ = true;
        return true;
    }
    const VocabularyTrie& vocabulary = grammar_->vocabulary();
    if (has_ended_ || id >= vocabulary.vocab_size()) return false;
    const std::string_view bytes = vocabulary.bytes_of(id);
    if (bytes.empty()) return false;
    const auto state = grammar_->ask(
        place_, [bytes](MaskMachine& machine, auto from) { return machine.after(from, bytes); });
    if (!state || *state == GrammarAutomaton::kDead) return false;
    place_.state = *state;
    return true;
}

}  // namespace afd::model
