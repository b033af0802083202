// SPDX-License-Identifier: Apache-2.0
#pragma once

// ByteProgram: which texts a grammar allows, as the instructions of a machine that reads bytes.
//
//   kBytes   one byte of a set, then `next`
//   kSplit   goes on at `next` and at `other`, both
//   kCall    runs a rule up to its kReturn, then `next`; rules may call each other and themselves
//   kReturn  the end of a rule; outside of every rule the end of the text
//
// It is written backwards: each function takes the node that follows and returns the one that it
// put before it, so a sequence reads from its last part to its first. GrammarAutomaton runs it.
//
// What is counted is written out, a step for each; those that no short text tells apart, as it ends
// before the count does, are alike.

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace afd::model {

using ByteSet = std::bitset<256>;

// The bytes `first` ... `last`.
ByteSet byte_range(unsigned first, unsigned last);

class ByteProgram {
  public:
    using Node = uint32_t;
    using Rule = uint32_t;

    enum class Kind : uint8_t { kBytes, kSplit, kCall, kReturn };
    struct Instruction {
        Kind kind = Kind::kReturn;
        uint32_t what = 0;  // kBytes: index of the set. kSplit: the other node. kCall: the rule.
        Node next = 0;
    };

    // Beyond it nothing is added any more, see is_full(); the program is of no use then.
    static constexpr size_t kNodesMax = 100'000;

    // The end of a rule or of the text.
    Node end();
    Node bytes(const ByteSet& set, Node next);
    Node literal(std::string_view text, Node next);
    Node either(Node one, Node other);
    Node call(Rule rule, Node next);

    // A loop is written around a node that is not there yet: reserve() makes it, and become_split()
    // says what it is.
    Node reserve();
    void become_split(Node reserved, Node one, Node other);

    // The longest text that does not tell nodes apart that are alike, in bytes.
    static constexpr size_t kShortBytes = 32;
    // What may follow the `count` nodes from `begin` on is for short texts what may follow those
    // from `other` on, each what the one in its place.
    void become_alike(Node begin, Node other, size_t count);

    // A rule without instructions; define() tells where it starts.
    Rule declare();
    void define(Rule rule, Node start);
    bool is_defined(Rule rule) const { return rules_[rule] != kNowhere; }

    void start_at(Node start) { start_ = start; }

    bool is_full() const { return nodes_.size() >= kNodesMax; }
    // Whether a rule can call itself before it has read a byte, directly or through others: a
    // program that never ends. REQUIRES: every rule is defined.
    bool has_left_recursion() const;

    Node start() const { return start_; }
    Node start_of(Rule rule) const { return rules_[rule]; }
    const Instruction& at(Node node) const { return nodes_[node]; }
    const ByteSet& set(uint32_t index) const { return sets_[index]; }
    // The same for nodes that are alike.
    Node like(Node node) const { return likes_[node]; }
    bool has_alike() const { return has_alike_; }
    size_t num_nodes() const { return nodes_.size(); }
    size_t num_sets() const { return sets_.size(); }

  private:
    static constexpr Node kNowhere = UINT32_MAX;

    Node add(Instruction instruction);

    std::vector<Instruction> nodes_;
    std::vector<Node> likes_;  // By node.
    bool has_alike_ = false;
    std::vector<ByteSet> sets_;                          // Each once,
    std::unordered_map<ByteSet, uint32_t> set_indexes_;  // and where.
    std::vector<Node> rules_;
    Node start_ = 0;
};

}  // namespace afd::model
