// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/grammar_cache.h"

#include <utility>

#include "model/grammar/response_program.h"
#include "proto/sampling.pb.h"

namespace afd::model {

Result<std::shared_ptr<SharedGrammar>> GrammarCache::grammar(
    const ResponseFormat& format,
    const std::shared_ptr<const VocabularyTrie>& vocabulary,
    std::vector<uint32_t> end_ids) {
    std::string name = format.SerializeAsString();
    name.append(1, '\0');
    for (const uint32_t id : end_ids) name += std::to_string(id) + ",";
    const auto known = index_.find(name);
    if (known != index_.end()) {
        entries_.splice(entries_.begin(), entries_, known->second);
    } else {
        AFD_ASSIGN(auto program, response_program(format));
        entries_.push_front(
            {name,
             std::make_shared<SharedGrammar>(std::move(program), vocabulary, std::move(end_ids))});
        index_.emplace(std::move(name), entries_.begin());
    }
    shrink();
    return entries_.front().grammar;
}

void GrammarCache::shrink() {
    size_t num_bytes = 0;
    auto entry = entries_.begin();
    for (; entry != entries_.end(); ++entry) {
        num_bytes += entry->num_bytes();
        if (num_bytes > bytes_max_ && entry != entries_.begin()) break;
    }
    while (entry != entries_.end()) {
        index_.erase(entry->name);
        entry = entries_.erase(entry);
    }
}

}  // namespace afd::model
