// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/endless_schemas.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Kind = Schema::Kind;
using Ends = std::vector<bool>;  // By the place of a schema: that it has a text that ends.

bool has_end(const Schema& schema, const Ends& ends) {
    const auto is_known = [&ends](uint32_t place) { return bool(ends[place]); };
    switch (schema.kind) {
        case Kind::kAnyOf:
            return std::ranges::any_of(schema.items, is_known);
        case Kind::kObject:
            return std::ranges::all_of(schema.members, [&](const Schema::Member& member) {
                return !member.is_required || ends[member.schema];
            });
        case Kind::kArray: {
            const size_t num_listed = std::min(schema.length.least, schema.items.size());
            const auto listed = std::span(schema.items).first(num_listed);
            const bool needs_rest = schema.length.least > num_listed;
            return std::ranges::all_of(listed, is_known) &&
                   (!needs_rest || (schema.rest && ends[*schema.rest]));
        }
        default:
            return true;
    }
}

// Backwards: what a schema is made of stands behind it, where nothing refers back.
Ends find_ends(const SchemaList& list) {
    Ends ends(list.size(), false);
    for (bool is_news = true; is_news;) {
        is_news = false;
        for (size_t place = list.size(); place-- > 0;) {
            if (ends[place] || !has_end(list[place], ends)) continue;
            ends[place] = true;
            is_news = true;
        }
    }
    return ends;
}

// What may be left out, and can only be that.
Result<> check_optional(const Schema& schema, const Ends& ends) {
    for (const Schema::Member& member : schema.members) {
        if (ends[member.schema]) continue;
        return invalid_argument("json_schema: the property {} has no text that ends",
                                with(shown_text(nlohmann::ordered_json(member.name))));
    }
    const bool is_list = schema.kind == Kind::kArray;
    const bool have_items_ends =
        std::ranges::all_of(schema.items, [&](uint32_t place) { return !is_list || ends[place]; });
    const bool has_rest_end = !schema.rest || ends[*schema.rest];
    if (have_items_ends && has_rest_end) return {};
    return invalid_argument(
        "json_schema: {} have no text that ends",
        with(is_list ? "the elements of an array" : "additionalProperties of an object"));
}

}  // namespace

Result<> drop_endless(SchemaList& list) {
    const Ends ends = find_ends(list);
    if (!ends.front()) return invalid_argument("json_schema: #: no text that ends fits it");
    for (size_t place = 0; place < list.size(); ++place) {
        // One that nobody chooses any more is as it may be.
        if (!ends[place]) continue;
        Schema& schema = list[place];
        AFD_TRY(check_optional(schema, ends));
        if (schema.kind != Kind::kAnyOf) continue;
        std::erase_if(schema.items, [&](uint32_t choice) { return !ends[choice]; });
    }
    return {};
}

}  // namespace afd::model
