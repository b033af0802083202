// SPDX-License-Identifier: Apache-2.0
#pragma once

// SharedGrammar: what all requests of one response_format have in common: its program, the tokens
// that end its texts, and the MaskMachine that new ones begin with.
//
// Where a machine has no room for what a text needs next, the text moves to another: the one that
// is shared by now, or an empty one, which is shared from then on. The old one ends with the last
// text that is at it. Whether something fits is settled in an empty machine in the end, which no
// other text has used: so what may come depends on the grammar and the text alone (promise 1),
// and a text that needs much costs the others nothing but masks that they compute again, and the
// time that a mask may take (mask_machine.h).
//
// Any thread.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "model/grammar/mask_machine.h"

namespace afd::model {

class SharedGrammar {
  public:
    using State = MaskMachine::State;

    // `end_ids`: tokens that end the text. REQUIRES: as MaskMachine.
    SharedGrammar(std::shared_ptr<const ByteProgram> program,
                  std::shared_ptr<const VocabularyTrie> vocabulary,
                  std::vector<uint32_t> end_ids,
                  size_t mask_bytes_max = MaskMachine::kMaskBytesMax);

    const VocabularyTrie& vocabulary() const { return *vocabulary_; }
    bool ends_text(uint32_t id) const;

    // Where a text is.
    struct Place {
        std::shared_ptr<MaskMachine> machine;
        State state = GrammarAutomaton::kDead;
    };
    Place start();

    // `ask(machine, state)`, an optional, at `place`; where that is missed, at the same place of
    // another machine, at which `place` is then. None: it does not fit an empty machine; `place`
    // stays.
    template <typename Ask>
    auto ask(Place& place, const Ask& ask) -> decltype(ask(*place.machine, place.state)) {
        if (auto answer = ask(*place.machine, place.state)) return answer;
        const GrammarAutomaton::Position position = place.machine->position(place.state);
        for (const bool is_empty : {false, true}) {
            const std::shared_ptr<MaskMachine> machine = is_empty ? make() : current();
            if (machine == place.machine) continue;
            const std::optional<State> state = machine->adopt(position);
            if (!state) continue;
            auto answer = ask(*machine, *state);
            if (!answer) continue;
            if (is_empty) share(machine);
            place = {machine, *state};
            return answer;
        }
        return std::nullopt;
    }

    // Of the program and the machine that is shared now, about.
    size_t num_bytes();
    // Of the machine that is shared now: masks that were computed.
    size_t num_walks() { return current()->num_walks(); }

  private:
    std::shared_ptr<MaskMachine> make() const;
    std::shared_ptr<MaskMachine> current();
    void share(std::shared_ptr<MaskMachine> machine);

    const std::shared_ptr<const ByteProgram> program_;
    const std::shared_ptr<const VocabularyTrie> vocabulary_;
    const std::vector<uint32_t> end_ids_;  // Ascending, each once.
    const size_t mask_bytes_max_;
    std::mutex mutex_;  // Of current_; no machine is used under it.
    std::shared_ptr<MaskMachine> current_;
};

}  // namespace afd::model
