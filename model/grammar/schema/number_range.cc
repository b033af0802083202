// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/number_range.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace afd::model {
namespace {

using Node = ByteProgram::Node;
using Bound = NumberRange::Bound;

constexpr int64_t kMost = NumberRange::kMost;

// Of one sign: numbers from `least` to `most`, both of no sign. Adds up what reads them.
class Magnitudes {
  public:
    Magnitudes(ByteProgram& program, Node next) : program_(program), next_(next) {}

    // Without `most`, as great as digits allow.
    std::optional<Node> read(bool is_whole, const Bound& least, const std::optional<Bound>& most) {
        result_.reset();
        const int64_t first = least.value + (least.is_excluded ? 1 : 0);
        if (is_whole) {
            const int64_t last = most ? most->value - (most->is_excluded ? 1 : 0) : kMost;
            add_whole(first, last, next_);
            return result_;
        }
        // Below the greatest, each whole part may have any fraction; but for the least one, which
        // needs one that is not zero if it is excluded.
        add_whole(first, most ? most->value - 1 : kMost, any_fraction());
        if (least.is_excluded && (!most || least.value < most->value)) {
            add(program_.literal(std::to_string(least.value), more_than_zero()));
        }
        if (most && !most->is_excluded && most->value >= first) {
            add(program_.literal(std::to_string(most->value), zeros()));
        }
        return result_;
    }

  private:
    Node digit(char first, char last, Node next) {
        return program_.bytes(byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)),
                              next);
    }

    void add(Node node) { result_ = result_ ? program_.either(*result_, node) : node; }

    // Whole numbers, then `behind`.
    void add_whole(int64_t least, int64_t most, Node behind) {
        for (int64_t first = least; first <= most;) {
            // Those of as many digits as `first`.
            const std::string low = std::to_string(first);
            const std::string nines(low.size(), '9');
            const int64_t last = std::min<int64_t>(std::stoll(nines), most);
            add(between(low, std::to_string(last), 0, behind));
            first = last + 1;
        }
    }

    // As many digits as both have, from `at` on, before which both are the same.
    Node between(const std::string& low, const std::string& high, size_t at, Node behind) {
        if (at == low.size()) return behind;
        const char first = low[at];
        const char last = high[at];
        if (is_all(low, '0', at + 1) && is_all(high, '9', at + 1)) {
            return digit(first, last, any(low.size() - at - 1, behind));
        }
        if (first == last) return digit(first, first, between(low, high, at + 1, behind));
        Node node = program_.either(digit(first, first, from(low, at + 1, behind)),
                                    digit(last, last, up_to(high, at + 1, behind)));
        if (first + 1 < last) {
            const auto above = static_cast<char>(first + 1);
            const auto below = static_cast<char>(last - 1);
            node = program_.either(node, digit(above, below, any(low.size() - at - 1, behind)));
        }
        return node;
    }

    Node from(const std::string& low, size_t at, Node behind) {
        if (is_all(low, '0', at)) return any(low.size() - at, behind);
        const Node same = digit(low[at], low[at], from(low, at + 1, behind));
        if (low[at] == '9') return same;
        const auto above = static_cast<char>(low[at] + 1);
        return program_.either(same, digit(above, '9', any(low.size() - at - 1, behind)));
    }

    Node up_to(const std::string& high, size_t at, Node behind) {
        if (is_all(high, '9', at)) return any(high.size() - at, behind);
        const Node same = digit(high[at], high[at], up_to(high, at + 1, behind));
        if (high[at] == '0') return same;
        const auto below = static_cast<char>(high[at] - 1);
        return program_.either(same, digit('0', below, any(high.size() - at - 1, behind)));
    }

    static bool is_all(const std::string& digits, char digit, size_t from) {
        return digits.find_first_not_of(digit, from) == std::string::npos;
    }

    // Any `count` digits. Those before the same node are written once.
    Node any(size_t count, Node behind) {
        std::vector<Node>& chain = chains_[behind];
        if (chain.empty()) chain.push_back(behind);
        while (chain.size() <= count) chain.push_back(digit('0', '9', chain.back()));
        return chain[count];
    }

    // Nothing, or a point and digits.
    Node any_fraction() {
        if (!any_fraction_) {
            Node more = next_;
            for (int i = 1; i < NumberRange::kFractionDigitsMax; ++i) {
                more = program_.either(next_, digit('0', '9', more));
            }
            any_fraction_ = program_.either(next_, program_.literal(".", digit('0', '9', more)));
        }
        return *any_fraction_;
    }

    // Nothing, or a point and zeros.
    Node zeros() {
        Node more = next_;
        for (int i = 1; i < NumberRange::kFractionDigitsMax; ++i) {
            more = program_.either(next_, digit('0', '0', more));
        }
        return program_.either(next_, program_.literal(".", digit('0', '0', more)));
    }

    // A point and digits that are not all zeros.
    Node more_than_zero() {
        Node more = next_;  // Behind the first that is none.
        Node node = digit('1', '9', more);
        for (int i = 1; i < NumberRange::kFractionDigitsMax; ++i) {
            more = program_.either(next_, digit('0', '9', more));
            node = program_.either(digit('0', '0', node), digit('1', '9', more));
        }
        return program_.literal(".", node);
    }

    ByteProgram& program_;
    const Node next_;
    std::map<Node, std::vector<Node>> chains_;  // By what is behind them: by their length.
    std::optional<Node> any_fraction_;
    std::optional<Node> result_;
};

// The same bound seen from zero.
Bound turned(const Bound& bound) {
    return {-bound.value, bound.is_excluded};
}

std::optional<Bound> turned(const std::optional<Bound>& bound) {
    return bound ? std::optional(turned(*bound)) : std::nullopt;
}

}  // namespace

bool NumberRange::is_empty() const {
    if (is_whole) {
        const int64_t first = least ? least->value + (least->is_excluded ? 1 : 0) : -kMost;
        const int64_t last = most ? most->value - (most->is_excluded ? 1 : 0) : kMost;
        return first > last;
    }
    if (!least || !most) return false;
    const bool are_excluded = least->is_excluded || most->is_excluded;
    return least->value > most->value || (are_excluded && least->value == most->value);
}

ByteProgram::Node NumberRange::write(ByteProgram& program, ByteProgram::Node next) const {
    Magnitudes magnitudes(program, next);
    std::optional<Node> positive;
    if (!most || most->value >= 0) {
        const Bound from = least && least->value >= 0 ? *least : Bound{};
        positive = magnitudes.read(is_whole, from, most);
    }
    std::optional<Node> negative;
    if (!least || least->value < 0) {
        // From zero on, which has no sign.
        const Bound from = most && most->value < 0 ? turned(*most) : Bound{0, true};
        negative = magnitudes.read(is_whole, from, turned(least));
    }
    if (!negative) return *positive;
    const Node minus = program.literal("-", *negative);
    return positive ? program.either(*positive, minus) : minus;
}

}  // namespace afd::model
