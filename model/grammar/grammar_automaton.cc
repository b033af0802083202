// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/grammar_automaton.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/grammar/vocabulary_trie.h"

namespace afd::model {
namespace {

// A place is looked at much faster than an instruction is run.
constexpr size_t kPlacesPerWork = 16;

// A known finish of a hash: each bit of the key changes half of all.
uint64_t mixed(uint64_t key) {
    key = (key ^ key >> 33) * 0xff51afd7ed558ccd;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53;
    return key ^ key >> 33;
}

uint64_t both_of(uint32_t high, uint32_t low) {
    return uint64_t{high} << 32 | low;
}

}  // namespace

bool GrammarAutomaton::PlaceSet::insert(Place place) {
    if (2 * used_.size() >= slots_.size()) {
        std::vector<uint64_t> keys;
        for (const size_t slot : used_) keys.push_back(slots_[slot]);
        slots_.assign(std::max<size_t>(64, 2 * slots_.size()), kFree);
        for (size_t i = 0; i < keys.size(); ++i) {
            used_[i] = slot_of(keys[i]);
            slots_[used_[i]] = keys[i];
        }
    }
    const uint64_t key = both_of(place.node, place.calls);
    const size_t slot = slot_of(key);
    if (slots_[slot] == key) return false;
    slots_[slot] = key;
    used_.push_back(slot);
    return true;
}

// Where the key is, or is to be.
size_t GrammarAutomaton::PlaceSet::slot_of(uint64_t key) const {
    size_t slot = mixed(key) & (slots_.size() - 1);
    while (slots_[slot] != kFree && slots_[slot] != key) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
}

void GrammarAutomaton::PlaceSet::clear() {
    for (const size_t slot : used_) slots_[slot] = kFree;
    used_.clear();
}

size_t GrammarAutomaton::CallHash::operator()(const Call& call) const {
    return mixed(both_of(call.back, call.outer));
}

size_t GrammarAutomaton::hash_of(const Places& places) {
    uint64_t hash = places.may_end ? 1 : 0;
    for (const Place& place : places.reading) {
        hash = mixed(hash ^ both_of(place.node, place.calls)) + 1;
    }
    return hash;
}

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const ByteProgram> program)
    : program_(std::move(program)), calls_(1) {
    find_classes();
    keep({});
    open_.push_back({program_->start(), 0});
    start_ = keep(closure());
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

void GrammarAutomaton::begin_walk() {
    walk_work_ = 0;
    if (++walk_ != 0) return;
    // Numbers begin anew: none of the steps may have one that comes again.
    for (Step& step : steps_) step.walk = 0;
    walk_ = 1;
}

GrammarAutomaton::State GrammarAutomaton::step(State state, uint8_t byte_class) {
    // A fill that has missed one step is of no use: none is tried any more.
    if (has_missed_ || is_walk_too_much()) return kDead;
    const size_t index = state * num_classes_ + byte_class;
    if (steps_[index].after == Step::kNew) {
        const size_t visits_before = num_visits_;
        const State after = make_step(state, byte_class);
        if (has_missed_ || is_walk_too_much()) return kDead;
        const size_t work =
            1 + states_[state].reading.size() / kPlacesPerWork + num_visits_ - visits_before;
        steps_[index].work = static_cast<uint32_t>(work);
        steps_[index].after = static_cast<uint16_t>(after);
    }
    Step& made = steps_[index];
    made.walk = walk_;
    walk_work_ += made.work;
    return made.after;
}

GrammarAutomaton::State GrammarAutomaton::make_step(State state, uint8_t byte_class) {
    open_.clear();
    for (const Place& place : states_[state].reading) {
        const ByteProgram::Instruction& instruction = program_->at(place.node);
        if (!program_->set(instruction.what)[example_[byte_class]]) continue;
        open_.push_back({instruction.next, place.calls});
    }
    Places places = closure();
    return has_missed_ || is_walk_too_much() ? kDead : keep(std::move(places));
}

GrammarAutomaton::Places GrammarAutomaton::closure() {
    seen_.clear();
    reading_.clear();
    Places places;
    while (!open_.empty()) {
        const Place place = open_.back();
        open_.pop_back();
        if (!seen_.insert(place)) continue;
        ++num_visits_;
        if (seen_.size() > kVisitsMax) {
            walk_work_ = kWalkWorkMax + 1;
            return {};
        }
        if (calls_.size() > kListsMax) {
            has_missed_ = true;
            return {};
        }
        const ByteProgram::Instruction& instruction = program_->at(place.node);
        switch (instruction.kind) {
            case ByteProgram::Kind::kBytes:
                reading_.push_back(place);
                break;
            case ByteProgram::Kind::kSplit:
                open_.push_back({instruction.next, place.calls});
                open_.push_back({instruction.what, place.calls});
                break;
            case ByteProgram::Kind::kCall: {
                // A call at the end of a rule returns where the rule returns: without this, each
                // element of a list would be a state of its own.
                const bool is_last =
                    program_->at(instruction.next).kind == ByteProgram::Kind::kReturn;
                const Calls calls = is_last ? place.calls : call(instruction.next, place.calls);
                if (calls_[calls].depth > kCallDepthMax) break;
                open_.push_back({program_->start_of(instruction.what), calls});
                break;
            }
            case ByteProgram::Kind::kReturn:
                if (place.calls == 0) {
                    places.may_end = true;
                } else {
                    open_.push_back({calls_[place.calls].back, calls_[place.calls].outer});
                }
                break;
        }
    }
    std::sort(reading_.begin(), reading_.end());
    places.reading.assign(reading_.begin(), reading_.end());
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
    const size_t hash = hash_of(places);
    const auto [first, last] = state_index_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
        if (states_[at->second] == places) return at->second;
    }
    if (states_.size() >= kStatesMax || steps_.size() + num_classes_ > kStepsMax ||
        num_places_ + places.reading.size() > kPlacesMax) {
        has_missed_ = true;
        return kDead;
    }
    const auto state = static_cast<State>(states_.size());
    num_places_ += places.reading.size();
    state_index_.emplace(hash, state);
    states_.push_back(std::move(places));
    steps_.resize(steps_.size() + num_classes_);
    after_plain_.emplace_back();
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
    return sizeof(*this) + num_places_ * sizeof(Place) +
           states_.size() * (sizeof(Places) + kEntryBytes + sizeof(Plain)) +
           calls_.size() * (2 * sizeof(Call) + kEntryBytes) + steps_.size() * sizeof(Step) +
           (open_.capacity() + reading_.capacity()) * sizeof(Place) + seen_.num_bytes() +
           num_kind_places_ * sizeof(Place) + kinds_.size() * (sizeof(Places) + kEntryBytes) +
           like_index_.size() * (sizeof(Call) + kEntryBytes) + likes_.size() * sizeof(Calls);
}

// What a character takes was counted when it was first asked for, and is the same for who asks
// again.
std::optional<size_t> GrammarAutomaton::num_plain_characters(State state) {
    size_t work = 0;
    std::optional<size_t> count = VocabularyTrie::kPlainCharactersMax;
    for (size_t i = 0; i < VocabularyTrie::kPlainCharactersMax && work <= kWalkWorkMax; ++i) {
        const Plain plain = after_plain(state);
        work += plain.work;
        if (plain.after == kMixed) count = std::nullopt;
        if (plain.after == kDead) count = i;
        if (plain.after == kMixed || plain.after == kDead || plain.after == state) break;
        state = plain.after;
    }
    begin_walk();
    walk_work_ = work;
    return count;
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

GrammarAutomaton::Plain GrammarAutomaton::after_plain(State state) {
    if (after_plain_[state].after != kUnknown) return after_plain_[state];
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
    begin_walk();
    const State wanted = next(state, ' ');
    const bool is_one = std::ranges::all_of(
        kForms, [&](const Form& form) { return all_lead_to(wanted, state, form); });
    const Plain plain{.after = is_one ? wanted : kMixed, .work = static_cast<uint32_t>(walk_work_)};
    if (!has_missed_) after_plain_[state] = plain;
    return plain;
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
            if (has_missed_ || is_walk_too_much()) return false;
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
