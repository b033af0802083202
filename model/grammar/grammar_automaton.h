// SPDX-License-Identifier: Apache-2.0
#pragma once

// GrammarAutomaton: runs a ByteProgram as a deterministic machine that is built as far as it is
// used.
//
// A state is the set of places where a text so far may be in the program: each a node that reads a
// byte, or the end, with the calls that it has to return to. States, and the lists of calls that
// they share, are kept once, so a state is a number and a step that was made before is a look-up.
// Bytes that no set of the program tells apart share a column of the table.
//
// A schema may have many ways at once, and a text many states: both have limits, so that a client
// pays for its own schema only.
//
// In memory: a machine that is full still makes the steps that it made before; who misses another
// takes the position of its text to an empty machine and goes on there as if there were no limit.
// Only a step that does not fit an empty machine fails.
//
// In time: what a walk over many steps costs is counted as if each of them were made for the first
// time, also where it was made before. So whether it is too much depends on where it begins and
// which bytes it tries, and not on what other texts did.
//
// Allocates when it comes to a state for the first time. One thread at a time.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/grammar/schema/byte_program.h"

namespace afd::model {

class GrammarAutomaton {
  public:
    using State = uint32_t;
    // No text that begins so is allowed.
    static constexpr State kDead = 0;
    // Beyond one of these a step is missed. All of them together are at most about 31 MiB; what
    // kind() keeps beside them is at most about 12 MiB.
    static constexpr size_t kStatesMax = 16'384;
    static constexpr size_t kStepsMax = size_t{1} << 21;   // Of all states; one for each class.
    static constexpr size_t kPlacesMax = size_t{1} << 18;  // Of all states together.
    static constexpr size_t kListsMax = size_t{1} << 17;   // Of calls.
    // Beyond one of these a walk is too much: instructions on the way to one state; and those of
    // all steps, with one for each step and for each 16 places that it looks at. That is about
    // 10 ms of a core. Large schemas of ordinary use take less than a quarter of it: objects of 500
    // members that may all be left out, 50 kinds of objects that begin alike.
    static constexpr size_t kVisitsMax = 50'000;
    static constexpr size_t kWalkWorkMax = 400'000;
    // Calls within each other: one for each object and list that is open, for the name or value
    // that it holds; within a string one more, for its next character; and one for the arguments of
    // a tool's call. A byte that would open one more is not allowed: where as many objects and
    // lists are open, strings are empty.
    static constexpr uint32_t kCallDepthMax = 64;

    // REQUIRES: !program->is_full(), !program->has_left_recursion(), every rule defined.
    explicit GrammarAutomaton(std::shared_ptr<const ByteProgram> program);

    State start() const { return start_; }
    // The state after `byte`; kDead also where the step was missed, or the walk is too much.
    State next(State state, uint8_t byte) {
        const Step& known = steps_[state * num_classes_ + classes_[byte]];
        return known.walk == walk_ ? known.after : step(state, classes_[byte]);
    }
    // Whether the text may end here.
    bool may_end(State state) const { return states_[state].may_end; }
    // How many characters of plain text (VocabularyTrie::is_plain_text) may come from `state` on,
    // whichever they are; kPlainCharactersMax: as many, or more. None: that depends on which.
    // Begins a walk, of which this is the first work.
    std::optional<size_t> num_plain_characters(State state);

    // Each step counts once in a walk.
    void begin_walk();
    size_t walk_work() const { return walk_work_; }
    // What next() and num_plain_characters() say then may be too little.
    bool is_walk_too_much() const { return walk_work_ > kWalkWorkMax; }

    // The same number only for states that no text of ByteProgram::kShortBytes tells apart. None:
    // the program has no nodes that are alike, so it would be another for each state.
    using Kind = uint32_t;
    std::optional<Kind> kind(State state);

    // Whether half of a limit is used up.
    bool is_half_full() const {
        return states_.size() > kStatesMax / 2 || steps_.size() > kStepsMax / 2 ||
               num_places_ > kPlacesMax / 2 || calls_.size() > kListsMax / 2;
    }

    // Whether next() or num_plain_characters() met a limit since forgive(): what they said then may
    // be too little. Nothing of that is kept. Begins a walk.
    bool has_missed() const { return has_missed_; }
    void forgive() {
        has_missed_ = false;
        begin_walk();
    }

    // A state for other machines of the same program.
    struct Position;
    Position position(State state) const;
    // The state of a position; kDead, and has_missed(), where there is no room for it.
    State adopt(const Position& position);

    size_t num_states() const { return states_.size(); }
    // Instructions on the way to all states, and to those that were missed.
    size_t num_visits() const { return num_visits_; }
    // Of all that it has allocated, about.
    size_t num_bytes() const;

  private:
    static constexpr State kUnknown = UINT32_MAX;
    static constexpr State kMixed = UINT32_MAX - 1;

    using Calls = uint32_t;  // Index into calls_; 0: none.
    struct Call {
        ByteProgram::Node back = 0;
        Calls outer = 0;
        uint32_t depth = 0;
        auto operator<=>(const Call&) const = default;
    };
    struct Place {
        ByteProgram::Node node = 0;
        Calls calls = 0;
        auto operator<=>(const Place&) const = default;
    };
    struct Places {
        std::vector<Place> reading;  // Sorted; of kBytes nodes.
        bool may_end = false;
        auto operator<=>(const Places&) const = default;
    };
    struct Step {
        static constexpr uint16_t kNew = UINT16_MAX;
        uint32_t work = 0;
        uint16_t after = kNew;  // A state.
        uint16_t walk = 0;      // That took it last, so it is not new; 0: none.
    };
    static_assert(sizeof(Step) == 8 && kStatesMax <= Step::kNew);
    // Where every character of plain text leads; kMixed: not all to one state.
    struct Plain {
        State after = kUnknown;
        uint32_t work = 0;
    };
    // A set of places that is cheap to empty.
    class PlaceSet {
      public:
        // False: it was there.
        bool insert(Place place);
        void clear();
        size_t size() const { return used_.size(); }
        size_t num_bytes() const {
            return slots_.size() * sizeof(uint64_t) + used_.capacity() * sizeof(size_t);
        }

      private:
        static constexpr uint64_t kFree = UINT64_MAX;  // There is no such place.
        size_t slot_of(uint64_t key) const;

        std::vector<uint64_t> slots_;  // A power of two, at most half of them used.
        std::vector<size_t> used_;
    };
    struct CallHash {
        size_t operator()(const Call& call) const;
    };
    static size_t hash_of(const Places& places);

    void find_classes();
    // Of the walk for the first time, or of all.
    State step(State state, uint8_t byte_class);
    State make_step(State state, uint8_t byte_class);
    // Follows open_ to all places that read a byte.
    Places closure();
    Calls call(ByteProgram::Node back, Calls outer);
    State keep(Places places);
    Calls like(Calls calls);
    // Begins a walk where that is not known.
    Plain after_plain(State state);
    // Whether every character that begins with one of these bytes leads from `state` to `wanted`.
    struct Form;
    bool all_lead_to(State wanted, State state, const Form& form);
    std::vector<uint8_t> distinct(uint8_t low, uint8_t high) const;

    std::shared_ptr<const ByteProgram> program_;
    std::array<uint8_t, 256> classes_{};
    std::vector<uint8_t> example_;  // A byte of each class.
    size_t num_classes_ = 0;

    std::vector<Call> calls_;
    std::unordered_map<Call, Calls, CallHash> call_index_;
    std::vector<Places> states_;
    std::unordered_multimap<size_t, State> state_index_;  // By the hash of its places.
    std::vector<Step> steps_;                             // [state][class]
    std::vector<Plain> after_plain_;                      // By state.
    // Places of nodes that stand for all that are like them, and lists of such calls, apart from
    // the lists of states: what fits a machine does not depend on who asked for kinds.
    std::map<Places, Kind> kinds_;
    std::map<Call, Calls> like_index_;
    std::vector<Calls> likes_;  // By calls; kUnknown.
    size_t num_kind_places_ = 0;
    size_t num_places_ = 0;
    size_t num_visits_ = 0;
    uint16_t walk_ = 1;
    size_t walk_work_ = 0;
    bool has_missed_ = false;
    // Of closure().
    std::vector<Place> open_;
    std::vector<Place> reading_;
    PlaceSet seen_;
    State start_ = kDead;
};

struct GrammarAutomaton::Position {
    Places places;            // Their calls are indices into `calls`.
    std::vector<Call> calls;  // The first is no call; each comes behind the one it goes on from.
};

}  // namespace afd::model
