// SPDX-License-Identifier: Apache-2.0
#pragma once

// GrammarCache: the SharedGrammars of the response formats that were asked for last, so that the
// second request of a format neither compiles it nor computes a mask that the first one had.
//
// Those that were asked for longest ago are given up once all together take more than a limit;
// requests that still run keep theirs, so beyond the limit a request holds one machine at most
// (grammar_automaton.h, mask_machine.h), and shares it with all of its format. Grammars grow while
// they are used; what they take is looked at when the next is asked for.
//
// One thread at a time; the grammars are for any.

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/grammar/shared_grammar.h"
#include "proto/status.h"

namespace afd {
class ResponseFormat;
}

namespace afd::model {

class GrammarCache {
  public:
    static constexpr size_t kBytesMax = size_t{64} << 20;

    // The last one asked for stays, however large it is.
    explicit GrammarCache(size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

    // `end_ids`: tokens that end the text; below the vocabulary's size. One vocabulary for all.
    // Errors: those of response_program().
    Result<std::shared_ptr<SharedGrammar>> grammar(
        const ResponseFormat& format,
        const std::shared_ptr<const VocabularyTrie>& vocabulary,
        std::vector<uint32_t> end_ids);

    size_t size() const { return entries_.size(); }

  private:
    struct Entry {
        std::string name;  // The format as it travels, and the ids.
        std::shared_ptr<SharedGrammar> grammar;
        size_t num_bytes() const { return 2 * name.size() + grammar->num_bytes(); }
    };

    void shrink();

    const size_t bytes_max_;
    std::list<Entry> entries_;  // The one asked for last is the first.
    std::map<std::string, std::list<Entry>::iterator, std::less<>> index_;
};

}  // namespace afd::model
