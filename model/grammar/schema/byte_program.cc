// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/byte_program.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::model {
namespace {

enum class Mark : uint8_t { kNew, kOpen, kDone };

}  // namespace

ByteSet byte_range(unsigned first, unsigned last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.set(byte);
    return set;
}

ByteProgram::Node ByteProgram::add(Instruction instruction) {
    // A program that is full is refused as a whole, so what it says does not matter.
    if (is_full()) return 0;
    nodes_.push_back(instruction);
    likes_.push_back(static_cast<Node>(nodes_.size() - 1));
    return likes_.back();
}

ByteProgram::Node ByteProgram::end() {
    return add({.kind = Kind::kReturn});
}

ByteProgram::Node ByteProgram::bytes(const ByteSet& set, Node next) {
    const auto [known, is_new] = set_indexes_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
    if (is_new) sets_.push_back(set);
    return add({.kind = Kind::kBytes, .what = known->second, .next = next});
}

ByteProgram::Node ByteProgram::literal(std::string_view text, Node next) {
    for (auto byte = text.rbegin(); byte != text.rend() && !is_full(); ++byte) {
        const auto value = static_cast<uint8_t>(*byte);
        next = bytes(byte_range(value, value), next);
    }
    return next;
}

ByteProgram::Node ByteProgram::either(Node one, Node other) {
    return add({.kind = Kind::kSplit, .what = other, .next = one});
}

ByteProgram::Node ByteProgram::call(Rule rule, Node next) {
    return add({.kind = Kind::kCall, .what = rule, .next = next});
}

ByteProgram::Node ByteProgram::reserve() {
    return add({.kind = Kind::kReturn});
}

void ByteProgram::become_split(Node reserved, Node one, Node other) {
    if (is_full()) return;
    nodes_[reserved] = {.kind = Kind::kSplit, .what = other, .next = one};
}

void ByteProgram::become_alike(Node begin, Node other, size_t count) {
    if (is_full()) return;
    for (Node i = 0; i < count; ++i) likes_[begin + i] = likes_[other + i];
    has_alike_ = has_alike_ || count > 0;
}

ByteProgram::Rule ByteProgram::declare() {
    rules_.push_back(kNowhere);
    return static_cast<Rule>(rules_.size() - 1);
}

void ByteProgram::define(Rule rule, Node start) {
    AFD_ASSERT(!is_defined(rule), "rule %u has a start", rule);
    rules_[rule] = start;
}

// A walk over what can be reached without a byte. Behind a call goes on what follows it only if the
// called rule may be empty; no rule of a JSON grammar that is followed by another call in front of
// every byte is empty but blanks, so what follows is always looked at: at worst a grammar is
// refused that could have run.
bool ByteProgram::has_left_recursion() const {
    std::vector<Mark> marks(rules_.size(), Mark::kNew);
    struct Visit {
        Rule rule;
        std::vector<Node> open;      // To be looked at.
        std::vector<bool> was_seen;  // By node, of this rule.
    };
    for (Rule first = 0; first < rules_.size(); ++first) {
        if (marks[first] != Mark::kNew) continue;
        marks[first] = Mark::kOpen;
        std::vector<Visit> path;
        path.push_back({first, {rules_[first]}, std::vector<bool>(nodes_.size())});
        while (!path.empty()) {
            Visit& visit = path.back();
            if (visit.open.empty()) {
                marks[visit.rule] = Mark::kDone;
                path.pop_back();
                continue;
            }
            const Node node = visit.open.back();
            visit.open.pop_back();
            if (visit.was_seen[node]) continue;
            visit.was_seen[node] = true;
            const Instruction& instruction = nodes_[node];
            if (instruction.kind == Kind::kSplit) {
                visit.open.push_back(instruction.next);
                visit.open.push_back(instruction.what);
            } else if (instruction.kind == Kind::kCall) {
                const Rule called = instruction.what;
                visit.open.push_back(instruction.next);
                if (marks[called] == Mark::kOpen) return true;
                if (marks[called] == Mark::kNew) {
                    marks[called] = Mark::kOpen;
                    path.push_back({called, {rules_[called]}, std::vector<bool>(nodes_.size())});
                }
            }
        }
    }
    return false;
}

}  // namespace afd::model
