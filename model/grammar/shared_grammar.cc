// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/shared_grammar.h"

#include <algorithm>

namespace afd::model {
namespace {

std::vector<uint32_t> each_once(std::vector<uint32_t> ids) {
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

}  // namespace

SharedGrammar::SharedGrammar(std::shared_ptr<const ByteProgram> program,
                             std::shared_ptr<const VocabularyTrie> vocabulary,
                             std::vector<uint32_t> end_ids,
                             size_t mask_bytes_max)
    : program_(std::move(program)),
      vocabulary_(std::move(vocabulary)),
      end_ids_(each_once(std::move(end_ids))),
      mask_bytes_max_(mask_bytes_max),
      current_(make()) {}

bool SharedGrammar::ends_text(uint32_t id) const {
    return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

SharedGrammar::Place SharedGrammar::start() {
    const std::shared_ptr<MaskMachine> machine = current();
    // A machine that was shared later began in the middle of a text, but its start is the same.
    return {machine, machine->start()};
}

std::shared_ptr<MaskMachine> SharedGrammar::make() const {
    return std::make_shared<MaskMachine>(program_, vocabulary_, end_ids_, mask_bytes_max_);
}

std::shared_ptr<MaskMachine> SharedGrammar::current() {
    const std::lock_guard lock(mutex_);
    return current_;
}

void SharedGrammar::share(std::shared_ptr<MaskMachine> machine) {
    const std::lock_guard lock(mutex_);
    // What is left of the old one goes behind the lock.
    current_.swap(machine);
}

size_t SharedGrammar::num_bytes() {
    return sizeof(*this) + program_->num_nodes() * sizeof(ByteProgram::Instruction) +
           program_->num_sets() * sizeof(ByteSet) + current()->num_bytes();
}

}  // namespace afd::model
