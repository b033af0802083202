// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/byte_pair_encoder.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace afd::model {
namespace {

// Scratch of a longer piece, 28 bytes for each of its own, is given back: one text of newlines must
// not cost memory for ever.
constexpr size_t kKeptPieceBytesMax = 65536;

}  // namespace

void BytePairEncoder::add_merge(uint32_t left, uint32_t right, uint32_t merged, uint32_t rank) {
    merges_.insert_or_assign(uint64_t{left} << 32 | right, Merge{rank, merged});
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
    const auto at = merges_.find(uint64_t{symbol.id} << 32 | next.id);
    if (at == merges_.end()) return;
    heap_.push_back({at->second.rank, left, at->second.id});
    std::ranges::push_heap(heap_, comes_later);
}

void BytePairEncoder::merge_pair(const Candidate& candidate) {
    Symbol& left = symbols_[static_cast<size_t>(candidate.left)];
    // Candidates are not taken out of the heap when their symbols merge with others; a stale one is
    // recognised here.
    if (!left.is_alive || left.next < 0) return;
    Symbol& right = symbols_[static_cast<size_t>(left.next)];
    const auto at = merges_.find(uint64_t{left.id} << 32 | right.id);
    if (at == merges_.end() || at->second.id != candidate.merged) return;
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
