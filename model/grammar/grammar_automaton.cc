// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/grammar_automaton.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "model/grammar/vocabulary_trie.h"

namespace afd::model {

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const ByteProgram> program)
    : program_(std::move(program)), calls_(1) {
    find_classes();
    keep({});
    start_ = keep(closure({{program_->start(), 0}}));
}

void GrammarAutomaton::find_classes() {
    std::map<std::vector<bool>, uint8_t> seen;
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::vector<bool> membership(program_->num_sets());
        for (uint32_t i = 0; i < membership.size(); ++i) membership[i] = program_->set(i)[byte];
        const auto [entry, is_new] =
            seen.emplace(std::move(membership), static_cast<uint8_t>(seen.size()));
        if (is_new) example_.push_back(static_cast<uint8_t>(byte));
        classes_[byte] = entry->second;
    }
    num_classes_ = example_.size();
}

GrammarAutomaton::State GrammarAutomaton::step(State state, uint8_t byte_class) {
    // A fill that has missed one step is of no use: none is tried any more.
    if (has_missed_) return kDead;
    std::vector<Place> open;
    for (const Place& place : states_[state].reading) {
        const ByteProgram::Instruction& instruction = program_->at(place.node);
        if (!program_->set(instruction.what)[example_[byte_class]]) continue;
        open.push_back({instruction.next, place.calls});
    }
    Places places = closure(std::move(open));
    const State after = has_missed_ ? kDead : keep(std::move(places));
    if (!has_missed_) steps_[state * num_classes_ + byte_class] = after;
    return after;
}

GrammarAutomaton::Places GrammarAutomaton::closure(std::vector<Place> open) {
    std::set<Place> seen;
    Places places;
    while (!open.empty()) {
        const Place place = open.back();
        open.pop_back();
        if (!seen.insert(place).second) continue;
        ++num_visits_;
        if (seen.size() > kVisitsMax || calls_.size() > kListsMax || num_visits_ > kWorkMax) {
            has_missed_ = true;
            return {};
        }
        const ByteProgram::Instruction& instruction = program_->at(place.node);
        switch (instruction.kind) {
            case ByteProgram::Kind::kBytes:
                places.reading.push_back(place);
                break;
            case ByteProgram::Kind::kSplit:
                open.push_back({instruction.next, place.calls});
                open.push_back({instruction.what, place.calls});
                break;
            case ByteProgram::Kind::kCall: {
                // A call at the end of a rule returns where the rule returns: without this, each
                // element of a list would be a state of its own.
                const bool is_last =
                    program_->at(instruction.next).kind == ByteProgram::Kind::kReturn;
                const Calls calls = is_last ? place.calls : call(instruction.next, place.calls);
                if (calls_[calls].depth > kCallDepthMax) break;
                open.push_back({program_->start_of(instruction.what), calls});
                break;
            }
            case ByteProgram::Kind::kReturn:
                if (place.calls == 0) {
                    places.may_end = true;
                } else {
                    open.push_back({calls_[place.calls].back, calls_[place.calls].outer});
                }
                break;
        }
    }
    std::sort(places.reading.begin(), places.reading.end());
    return places;
}

GrammarAutomaton::Calls GrammarAutomaton::call(ByteProgram::Node back, Calls outer) {
    const Call made{.back = back, .outer = outer, .depth = calls_[outer].depth + 1};
    const auto [entry, is_new] = call_index_.emplace(made, static_cast<Calls>(calls_.size()));
    if (is_new) calls_.push_back(made);
    return entry->second;
}

GrammarAutomaton::State GrammarAutomaton::keep(Places places) {
    // The first one kept has no place: kDead.
    const auto found = state_index_.find(places);
    if (found != state_index_.end()) return found->second;
    if (states_.size() >= kStatesMax || num_places_ + places.reading.size() > kPlacesMax) {
        has_missed_ = true;
        return kDead;
    }
    const auto state = static_cast<State>(states_.size());
    num_places_ += places.reading.size();
    state_index_.emplace(places, state);
    states_.push_back(std::move(places));
    steps_.resize(steps_.size() + num_classes_, kUnknown);
    after_plain_.push_back(kUnknown);
    return state;
}

std::optional<GrammarAutomaton::Kind> GrammarAutomaton::kind(State state) {
    if (!program_->has_alike()) return std::nullopt;
    Places places = states_[state];
    for (Place& place : places.reading) {
        place = {.node = program_->like(place.node), .calls = like(place.calls)};
    }
    std::sort(places.reading.begin(), places.reading.end());
    const size_t size = places.reading.size();
    const auto [entry, is_new] =
        kinds_.emplace(std::move(places), static_cast<Kind>(kinds_.size()));
    if (is_new) num_kind_places_ += size;
    return entry->second;
}

GrammarAutomaton::Calls GrammarAutomaton::like(Calls calls) {
    if (calls == 0) return 0;
    likes_.resize(calls_.size(), kUnknown);
    if (likes_[calls] == kUnknown) {
        Call made = calls_[calls];
        made.back = program_->like(made.back);
        made.outer = like(made.outer);
        const auto entry =
            like_index_.emplace(made, static_cast<Calls>(like_index_.size() + 1)).first;
        likes_[calls] = entry->second;
    }
    return likes_[calls];
}

GrammarAutomaton::Position GrammarAutomaton::position(State state) const {
    Position position{.places = states_[state], .calls = std::vector<Call>(1)};
    // A list of calls comes behind the one that it goes on from, so that one is new already.
    std::map<Calls, Calls> renamed{{0, 0}};
    std::vector<Calls> chain;
    for (Place& place : position.places.reading) {
        for (Calls at = place.calls; !renamed.contains(at); at = calls_[at].outer) {
            chain.push_back(at);
        }
        for (; !chain.empty(); chain.pop_back()) {
            Call copy = calls_[chain.back()];
            copy.outer = renamed.at(copy.outer);
            renamed[chain.back()] = static_cast<Calls>(position.calls.size());
            position.calls.push_back(copy);
        }
        place.calls = renamed.at(place.calls);
    }
    return position;
}

GrammarAutomaton::State GrammarAutomaton::adopt(const Position& position) {
    std::vector<Calls> renamed(position.calls.size());
    for (size_t i = 1; i < position.calls.size(); ++i) {
        renamed[i] = call(position.calls[i].back, renamed[position.calls[i].outer]);
    }
    Places places = position.places;
    for (Place& place : places.reading) place.calls = renamed[place.calls];
    std::sort(places.reading.begin(), places.reading.end());
    return keep(std::move(places));
}

size_t GrammarAutomaton::num_bytes() const {
    // An entry of a map has three pointers, a colour, and what an allocation takes.
    constexpr size_t kEntryBytes = 48;
    return sizeof(*this) + 2 * num_places_ * sizeof(Place) +
           states_.size() * (2 * sizeof(Places) + kEntryBytes + sizeof(State)) +
           calls_.size() * (2 * sizeof(Call) + kEntryBytes) + steps_.size() * sizeof(State) +
           num_kind_places_ * sizeof(Place) + kinds_.size() * (sizeof(Places) + kEntryBytes) +
           like_index_.size() * (sizeof(Call) + kEntryBytes) + likes_.size() * sizeof(Calls);
}

std::optional<size_t> GrammarAutomaton::num_plain_characters(State state) {
    for (size_t count = 0; count < VocabularyTrie::kPlainCharactersMax; ++count) {
        const State next = after_plain(state);
        if (next == kMixed) return std::nullopt;
        if (next == kDead) return count;
        if (next == state) break;
        state = next;
    }
    return VocabularyTrie::kPlainCharactersMax;
}

// A form of a character in UTF-8 (table 3-7 of the Unicode standard): bytes that it begins with,
// and the range of the second one; all further ones are 0x80 to 0xbf.
struct GrammarAutomaton::Form {
    uint8_t first_low;
    uint8_t first_high;
    int num_more;
    uint8_t second_low = 0x80;
    uint8_t second_high = 0xbf;
};

GrammarAutomaton::State GrammarAutomaton::after_plain(State state) {
    if (after_plain_[state] != kUnknown) return after_plain_[state];
    // Without the quotation mark and the backslash.
    static constexpr std::array kForms = {Form{0x20, 0x21, 0},
                                          Form{0x23, 0x5b, 0},
                                          Form{0x5d, 0x7f, 0},
                                          Form{0xc2, 0xdf, 1},
                                          Form{0xe0, 0xe0, 2, 0xa0, 0xbf},
                                          Form{0xe1, 0xec, 2},
                                          Form{0xed, 0xed, 2, 0x80, 0x9f},
                                          Form{0xee, 0xef, 2},
                                          Form{0xf0, 0xf0, 3, 0x90, 0xbf},
                                          Form{0xf1, 0xf3, 3},
                                          Form{0xf4, 0xf4, 3, 0x80, 0x8f}};
    const State wanted = next(state, ' ');
    const bool is_one = std::ranges::all_of(
        kForms, [&](const Form& form) { return all_lead_to(wanted, state, form); });
    const State after = is_one ? wanted : kMixed;
    if (!has_missed_) after_plain_[state] = after;
    return after;
}

// All characters of the form at once: of the states after so many bytes there are few, of the
// characters a million.
bool GrammarAutomaton::all_lead_to(State wanted, State state, const Form& form) {
    std::vector<State> states = {state};
    for (int i = 0; i <= form.num_more; ++i) {
        const bool is_second = i == 1;
        const std::vector<uint8_t> bytes = i == 0 ? distinct(form.first_low, form.first_high)
                                                  : distinct(is_second ? form.second_low : 0x80,
                                                             is_second ? form.second_high : 0xbf);
        std::vector<State> after;
        for (const State from : states) {
            for (const uint8_t byte : bytes) after.push_back(next(from, byte));
            if (has_missed_) return false;
        }
        std::ranges::sort(after);
        after.erase(std::unique(after.begin(), after.end()), after.end());
        states = std::move(after);
    }
    return states == std::vector{wanted};
}

// Of bytes that no set tells apart one will do.
std::vector<uint8_t> GrammarAutomaton::distinct(uint8_t low, uint8_t high) const {
    std::vector<uint8_t> bytes;
    std::array<bool, 256> is_there{};
    for (unsigned byte = low; byte <= high; ++byte) {
        if (!std::exchange(is_there[classes_[byte]], true)) {
            bytes.push_back(static_cast<uint8_t>(byte));
        }
    }
    return bytes;
}

}  // namespace afd::model
