// SPDX-License-Identifier: Apache-2.0
#pragma once

// Texts and vocabularies for tests of grammars.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/grammar_automaton.h"
#include "model/grammar/schema/schema_program.h"
#include "model/grammar/token_constraint.h"

namespace afd::model {

// Whether the machine allows the whole of `text`.
inline bool allows(GrammarAutomaton& automaton, std::string_view text) {
    GrammarAutomaton::State state = automaton.start();
    for (const char byte : text) state = automaton.next(state, static_cast<uint8_t>(byte));
    return automaton.may_end(state);
}

inline bool allows(const std::shared_ptr<const ByteProgram>& program, std::string_view text) {
    GrammarAutomaton automaton(program);
    return allows(automaton, text);
}

// Why a schema is refused; empty: it is taken.
inline std::string refusal(const std::string& schema) {
    const auto program = schema_program(schema);
    if (program.ok()) return "";
    EXPECT_EQ(program.error().code, Code::kInvalidArgument);
    return program.error().message;
}

// Token 0 ends a text; then every byte, then pieces as they occur in JSON, whole and cut.
inline std::vector<std::string> small_vocabulary() {
    std::vector<std::string> tokens{""};
    for (int byte = 0; byte < 256; ++byte)
        tokens.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* piece :
         {"{\"",   "\":",  "\": ", "\",",      ", \"",      "},",   "}]",    "]}",    "true",
          "false", "null", "name", "age",      "12",        "0.5",  "e+",    "-1",    "\\u00e9",
          "\\",    "é",    "日本", "\xe6\x97", "\xf0\x9f",  "\n  ", "   ",   "[1, 2", "a\"",
          "tr",    "ue",   "nul",  "l}",       "id\":",     "\"\"", "\",\"", "{}",    "[]",
          "\r\n",  "red",  "gre",  "en\"",     "{\"name\":"}) {
        tokens.emplace_back(piece);
    }
    return tokens;
}

// Goes on by tokens that may come, drawn by `random`, until an end token or `tokens_max`; towards
// the end it prefers to end. The text; empty: it did not end in time.
inline std::string random_text(TokenConstraint& constraint,
                               const std::vector<std::string>& tokens,
                               std::mt19937& random,
                               size_t tokens_max) {
    std::string text;
    for (size_t i = 0; i < tokens_max; ++i) {
        const auto allowed = constraint.allowed();
        std::vector<uint32_t> choices;
        for (uint32_t id = 0; id < tokens.size(); ++id) {
            if (TokenConstraint::is_set(allowed, id)) choices.push_back(id);
        }
        if (choices.empty()) return "";
        // What closes something, so that a text comes to its end.
        const bool closes = i > tokens_max / 4;
        std::vector<uint32_t> closing;
        for (const uint32_t id : choices) {
            const bool is_closing =
                id == 0 || tokens[id] == "\"" || tokens[id] == "}" || tokens[id] == "]";
            if (closes && is_closing) closing.push_back(id);
        }
        const std::vector<uint32_t>& from = closing.empty() ? choices : closing;
        const uint32_t id = from[random() % from.size()];
        if (!constraint.advance(id)) return "";
        if (id == 0) return text;
        text += tokens[id];
    }
    return "";
}

}  // namespace afd::model
