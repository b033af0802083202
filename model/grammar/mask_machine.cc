// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/mask_machine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "proto/check.h"

namespace afd::model {
namespace {

size_t hash_of(std::span<const uint64_t> words) {
    // FNV-1a over words, with a turn that brings the high bits down.
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint64_t word : words) hash = std::rotl((hash ^ word) * 0x100000001b3, 29);
    return hash;
}

}  // namespace

MaskMachine::MaskMachine(std::shared_ptr<const ByteProgram> program,
                         std::shared_ptr<const VocabularyTrie> vocabulary,
                         std::vector<uint32_t> end_ids,
                         size_t mask_bytes_max)
    : vocabulary_(std::move(vocabulary)),
      end_ids_(std::move(end_ids)),
      words_((vocabulary_->vocab_size() + 63) / 64),
      masks_max_(mask_bytes_max / std::max<size_t>(1, words_ * sizeof(uint64_t))),
      automaton_(std::move(program)),
      start_(automaton_.start()),
      path_(VocabularyTrie::kTokenBytesMax + 1),
      scratch_(words_) {
    AFD_ASSERT(masks_max_ > 0, "%zu bytes for masks of %zu words", mask_bytes_max, words_);
    for (const uint32_t id : end_ids_) {
        AFD_ASSERT(
            id < vocabulary_->vocab_size(), "end token %u of %zu", id, vocabulary_->vocab_size());
    }
}

std::optional<TokenMask> MaskMachine::mask(State state) {
    const std::lock_guard lock(mutex_);
    auto known = state_masks_.find(state);
    if (known == state_masks_.end()) {
        automaton_.forgive();
        const std::optional<size_t> index = make(state);
        if (!index) return std::nullopt;
        known = state_masks_.emplace(state, *index).first;
    }
    return TokenMask{words_of(known->second), mask_sizes_[known->second]};
}

// Of two states of a kind the walks take the same room and work, long tokens aside. So as long as
// half of a machine is free behind both, the walk that is saved would have fitted an empty one, and
// as long as both are half of what a walk may be, it would not have been too much: what may come
// does not depend on who came first.
std::optional<size_t> MaskMachine::make(State state) {
    const std::optional<GrammarAutomaton::Kind> kind = automaton_.kind(state);
    if (kind) {
        const auto known = kind_masks_.find(*kind);
        if (known != kind_masks_.end()) {
            constexpr size_t kHalf = GrammarAutomaton::kWalkWorkMax / 2;
            fill_like(state, known->second.index);
            const bool is_half_work =
                known->second.work <= kHalf && automaton_.walk_work() <= kHalf;
            if (!automaton_.has_missed() && !automaton_.is_half_full() && is_half_work) {
                return keep();
            }
            automaton_.forgive();
        }
    }
    fill(state);
    if (automaton_.has_missed()) return std::nullopt;
    const bool is_too_much = automaton_.is_walk_too_much();
    if (is_too_much) std::fill(scratch_.begin(), scratch_.end(), 0);
    const std::optional<size_t> index = keep();
    if (!index) return std::nullopt;
    ++num_walks_;
    if (kind && !is_too_much) kind_masks_.emplace(*kind, KindMask{*index, automaton_.walk_work()});
    return index;
}

std::optional<size_t> MaskMachine::keep() {
    const size_t hash = hash_of(scratch_);
    const auto [first, last] = mask_index_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
        if (std::ranges::equal(words_of(at->second), scratch_)) return at->second;
    }
    if (masks_.size() == masks_max_) return std::nullopt;
    const size_t index = masks_.size();
    masks_.push_back(std::make_unique<uint64_t[]>(words_));
    std::copy(scratch_.begin(), scratch_.end(), masks_.back().get());
    size_t num_tokens = 0;
    for (const uint64_t word : scratch_) num_tokens += static_cast<size_t>(std::popcount(word));
    mask_sizes_.push_back(num_tokens);
    mask_index_.emplace(hash, index);
    return index;
}

std::span<const uint64_t> MaskMachine::words_of(size_t index) const {
    return {masks_[index].get(), words_};
}

std::optional<MaskMachine::State> MaskMachine::after(State state, std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    automaton_.forgive();
    for (const char byte : bytes) state = automaton_.next(state, static_cast<uint8_t>(byte));
    if (automaton_.has_missed()) return std::nullopt;
    return state;
}

bool MaskMachine::may_end(State state) {
    const std::lock_guard lock(mutex_);
    return automaton_.may_end(state);
}

GrammarAutomaton::Position MaskMachine::position(State state) {
    const std::lock_guard lock(mutex_);
    return automaton_.position(state);
}

std::optional<MaskMachine::State> MaskMachine::adopt(const GrammarAutomaton::Position& position) {
    const std::lock_guard lock(mutex_);
    automaton_.forgive();
    const State state = automaton_.adopt(position);
    if (automaton_.has_missed()) return std::nullopt;
    return state;
}

size_t MaskMachine::num_bytes() {
    const std::lock_guard lock(mutex_);
    constexpr size_t kEntryBytes = 48;  // Of a map, with its allocation.
    return sizeof(*this) + automaton_.num_bytes() + path_.size() * sizeof(State) +
           (masks_.size() + 1) * words_ * sizeof(uint64_t) + masks_.size() * 2 * kEntryBytes +
           (state_masks_.size() + kind_masks_.size()) * kEntryBytes;
}

size_t MaskMachine::num_walks() {
    const std::lock_guard lock(mutex_);
    return num_walks_;
}

size_t MaskMachine::num_visits() {
    const std::lock_guard lock(mutex_);
    return automaton_.num_visits();
}

void MaskMachine::fill(State state) {
    const std::optional<size_t> num_plain = automaton_.num_plain_characters(state);
    std::fill(scratch_.begin(), scratch_.end(), 0);
    if (num_plain) fill_plain(*num_plain);
    fill_from_trie(state, num_plain.has_value());
    fill_ends(state);
}

void MaskMachine::fill_like(State state, size_t index) {
    automaton_.begin_walk();
    std::ranges::copy(words_of(index), scratch_.begin());
    path_[0] = state;
    size_t num_alive = 0;  // Bytes of the token before that may come.
    for (const VocabularyTrie::LongToken token : vocabulary_->long_tokens()) {
        const std::string_view bytes = vocabulary_->bytes_of(token.id);
        // Where the one before ended, so does this one if it has that byte as well.
        bool may_come = token.num_shared <= num_alive;
        if (may_come) {
            num_alive = token.num_shared;
            for (; num_alive < bytes.size(); ++num_alive) {
                const auto byte = static_cast<uint8_t>(bytes[num_alive]);
                path_[num_alive + 1] = automaton_.next(path_[num_alive], byte);
                if (path_[num_alive + 1] == GrammarAutomaton::kDead) break;
            }
            may_come = num_alive == bytes.size();
        }
        const uint64_t bit = uint64_t{1} << (token.id % 64);
        scratch_[token.id / 64] &= ~bit;
        if (may_come) scratch_[token.id / 64] |= bit;
    }
    fill_ends(state);
}

void MaskMachine::fill_ends(State state) {
    const bool may_end = automaton_.may_end(state);
    for (const uint32_t id : end_ids_) {
        const uint64_t bit = uint64_t{1} << (id % 64);
        // An end token has no text, whatever its entry in the vocabulary.
        scratch_[id / 64] &= ~bit;
        if (may_end) scratch_[id / 64] |= bit;
    }
}

// From the fewer: those that are too long, or those that are not.
void MaskMachine::fill_plain(size_t num_characters) {
    const std::span<const uint32_t> all = vocabulary_->plain_by_length();
    const size_t num_longer = vocabulary_->num_plain_longer_than(num_characters);
    if (num_longer > all.size() / 2) {
        for (const uint32_t id : all.subspan(num_longer)) {
            scratch_[id / 64] |= uint64_t{1} << (id % 64);
        }
        return;
    }
    std::ranges::copy(vocabulary_->plain_text(), scratch_.begin());
    for (const uint32_t id : all.first(num_longer)) {
        scratch_[id / 64] &= ~(uint64_t{1} << (id % 64));
    }
}

void MaskMachine::fill_from_trie(State state, bool has_plain_text) {
    const std::span<const VocabularyTrie::Node> nodes = vocabulary_->nodes();
    path_[0] = state;
    for (uint32_t i = 0; i < nodes.size();) {
        const VocabularyTrie::Node& node = nodes[i];
        if (has_plain_text && node.is_plain != 0) {
            i = node.skip;
            continue;
        }
        const State after = automaton_.next(path_[node.depth - 1], node.byte);
        path_[node.depth] = after;
        if (after == GrammarAutomaton::kDead) {
            if (automaton_.is_walk_too_much()) return;
            i = node.skip;
            continue;
        }
        for (const uint32_t id : vocabulary_->tokens_of(i)) {
            scratch_[id / 64] |= uint64_t{1} << (id % 64);
        }
        ++i;
    }
}

}  // namespace afd::model
