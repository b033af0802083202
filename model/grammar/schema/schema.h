// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a JSON Schema allows, in a form of its own: what schema_reader.h makes of a text, and
// schema_program.h a grammar.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/grammar/schema/number_range.h"
#include "model/grammar/schema/string_formats.h"

namespace afd::model {

struct Schema {
    enum class Kind : uint8_t {
        kAny,
        kNull,
        kBoolean,
        kInteger,
        kNumber,
        kString,   // length, or format
        kArray,    // length, items, rest
        kObject,   // members, rest
        kSpelled,  // texts: one of them, byte by byte
        kAnyOf,    // items: one of them
    };
    // How often something comes; `most` empty: without end. least <= most.
    struct Count {
        size_t least = 0;
        std::optional<size_t> most = {};
    };
    struct Member {
        std::string name;
        uint32_t schema = 0;
        bool is_required = false;
    };

    Kind kind = Kind::kAny;
    // What the schema says itself. Where it does not, texts are of the kind and have no further
    // members all the same, but other values would be valid, too.
    bool has_type = false;
    bool is_closed = false;  // kObject: there are no further members.
    Count length = {};       // Code points, or elements.
    std::optional<StringFormat> format = {};
    std::optional<NumberRange> range = {};  // kInteger, kNumber.
    std::vector<uint32_t> items = {};       // Of the first elements, or the choices.
    std::vector<Member> members = {};       // In the order of the text.
    std::optional<uint32_t> rest = {};  // Further elements, or members of other names; empty: none.
    std::vector<std::string> texts = {};  // JSON without blanks.
};

// Schemas refer to each other by their places in the list; the first is the whole.
using SchemaList = std::vector<Schema>;

}  // namespace afd::model
