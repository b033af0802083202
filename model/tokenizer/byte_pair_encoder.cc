// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/byte_pair_encoder.h"

#include <algorithm>

#include "model/unicode/utf8.h"

namespace afd::model {
namespace {

// Scratch of a longer piece, 28 bytes for each of its own, is given back: one text of newlines must
// not cost memory for ever.
constexpr size_t kKeptPieceBytesMax = 65536;

// Of a character in valid UTF-8, by its first byte.
size_t size_of_character(uint8_t first) {
    if (first < 0x80) return 1;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// Its bytes as a number.
uint32_t number_of(std::string_view character) {
    uint32_t number = 0;
    for (const char c : character) number = number << 8 | static_cast<uint8_t>(c);
    return number;
}

}  // namespace

void BytePairEncoder::add_merge(uint32_t left, uint32_t right, uint32_t merged, uint32_t rank) {
    merges_.set(left, right, {rank, merged});
}

size_t BytePairEncoder::joint_of(uint32_t left, uint32_t right) {
    // Multiplicative hashing; the constant is 2^64 divided by the golden ratio.
    return ((uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15U) >> (64 - kJointBits);
}

void BytePairEncoder::add_joint(std::string_view left, std::string_view right) {
    if (joints_.empty()) joints_.resize((size_t{1} << kJointBits) / 64);
    const size_t bit = joint_of(number_of(left), number_of(right));
    joints_[bit / 64] |= uint64_t{1} << bit % 64;
}

size_t BytePairEncoder::first_part(std::string_view piece) const {
    if (joints_.empty()) return piece.size();
    uint32_t left = 0;
    for (size_t at = 0; at < piece.size();) {
        const size_t size = size_of_character(static_cast<uint8_t>(piece[at]));
        const uint32_t right = number_of(piece.substr(at, size));
        const size_t bit = joint_of(left, right);
        if (at > 0 && (joints_[bit / 64] >> bit % 64 & 1U) == 0) return at;
        left = right;
        at += size;
    }
    return piece.size();
}

void BytePairEncoder::encode(std::string_view piece, std::vector<uint32_t>& ids) {
    symbols_.clear();
    heap_.clear();
    begin_with(piece);
    const auto size = static_cast<int32_t>(symbols_.size());
    for (int32_t i = 0; i + 1 < size; ++i) push_candidate(i);
    while (!heap_.empty()) {
        std::ranges::pop_heap(heap_, comes_later);
        const Candidate candidate = heap_.back();
        heap_.pop_back();
        merge_pair(candidate);
    }
    for (int32_t i = size > 0 ? 0 : -1; i >= 0; i = symbols_[static_cast<size_t>(i)].next) {
        ids.push_back(symbols_[static_cast<size_t>(i)].id);
    }
    if (piece.size() > kKeptPieceBytesMax) {
        std::vector<Symbol>().swap(symbols_);
        std::vector<Candidate>().swap(heap_);
    }
}

void BytePairEncoder::begin_with(std::string_view piece) {
    while (!piece.empty()) {
        const size_t size = character_ids_.empty() ? 1 : next_character(piece).size;
        const auto at = character_ids_.empty() ? character_ids_.end()
                                               : character_ids_.find(piece.substr(0, size));
        if (at != character_ids_.end()) {
            push_symbol(at->second);
        } else {
            for (const char c : piece.substr(0, size)) {
                push_symbol(byte_ids_[static_cast<uint8_t>(c)]);
            }
        }
        piece.remove_prefix(size);
    }
    if (!symbols_.empty()) symbols_.back().next = -1;
}

void BytePairEncoder::push_symbol(uint32_t id) {
    const auto index = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({id, index - 1, index + 1, true});
}

bool BytePairEncoder::comes_later(const Candidate& a, const Candidate& b) {
    // Of equal ranks the leftmost pair first, as the training did it: the ids depend on it.
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

void BytePairEncoder::push_candidate(int32_t left) {
    const Symbol& symbol = symbols_[static_cast<size_t>(left)];
    const Symbol& next = symbols_[static_cast<size_t>(symbol.next)];
    const MergeTable::Merge* const merge = merges_.find(symbol.id, next.id);
    if (merge == nullptr) return;
    heap_.push_back({merge->rank, left, merge->id});
    std::ranges::push_heap(heap_, comes_later);
}

void BytePairEncoder::merge_pair(const Candidate& candidate) {
    Symbol& left = symbols_[static_cast<size_t>(candidate.left)];
    // Candidates are not taken out of the heap when their symbols merge with others; a stale one is
    // recognised here.
    if (!left.is_alive || left.next < 0) return;
    Symbol& right = symbols_[static_cast<size_t>(left.next)];
    const MergeTable::Merge* const merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->id != candidate.merged) return;
    left.id = candidate.merged;
    right.is_alive = false;
    left.next = right.next;
    if (left.next >= 0) {
        symbols_[static_cast<size_t>(left.next)].previous = candidate.left;
        push_candidate(candidate.left);
    }
    if (left.previous >= 0) push_candidate(left.previous);
}

}  // namespace afd::model
