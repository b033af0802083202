// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/schema_types.h"

#include <algorithm>
#include <vector>

namespace afd::model {
namespace {

using Kind = Schema::Kind;

// How far it is looked into members of members.
constexpr int kMemberDepthMax = 16;
// Of a value, for one look.
constexpr size_t kBlockBytes = 64;

// The type of a value that is spelled.
Kind kind_of(const std::string& text) {
    switch (text.front()) {
        case '"':
            return Kind::kString;
        case '{':
            return Kind::kObject;
        case '[':
            return Kind::kArray;
        case 'n':
            return Kind::kNull;
        case 't':
        case 'f':
            return Kind::kBoolean;
        default:
            return Kind::kNumber;
    }
}

bool are_other_types(Kind one, Kind other) {
    if (one == Kind::kAny || other == Kind::kAny) return false;
    const auto type = [](Kind kind) { return kind == Kind::kInteger ? Kind::kNumber : kind; };
    return type(one) != type(other);
}

// Of two values that are spelled.
bool is_other(const std::string& one, const std::string& second) {
    if (are_other_types(kind_of(one), kind_of(second))) return true;
    // 1 and 1.0 are one value in two spellings; so may be lists and objects.
    const bool has_one_spelling =
        kind_of(one) != Kind::kNumber && one.front() != '{' && one.front() != '[';
    return has_one_spelling && one != second;
}

class DisjointSchemas {
  public:
    DisjointSchemas(const SchemaList& schemas, LookBudget& looks)
        : schemas_(schemas), looks_(looks) {}

    bool are(uint32_t one, uint32_t other, int depth) {
        if (depth == kMemberDepthMax || !looks_.take(1)) return false;
        const Schema& a = schemas_[one];
        const Schema& b = schemas_[other];
        if (a.kind == Kind::kAnyOf) {
            return std::ranges::all_of(
                a.items, [&](uint32_t choice) { return are(choice, other, depth + 1); });
        }
        if (b.kind == Kind::kAnyOf) return are(other, one, depth + 1);
        if (a.kind == Kind::kSpelled) return is_none_of(a, b);
        if (b.kind == Kind::kSpelled) return is_none_of(b, a);
        if (!a.has_type || !b.has_type) return false;
        if (are_other_types(a.kind, b.kind)) return true;
        return a.kind == Kind::kObject &&
               (has_what_lacks(a, b, depth) || has_what_lacks(b, a, depth));
    }

  private:
    bool is_none_of(const Schema& spelled, const Schema& other) {
        return std::ranges::all_of(spelled.texts, [&](const std::string& text) {
            const size_t num_blocks = 1 + text.size() / kBlockBytes;
            if (!looks_.take(1 + other.texts.size() * num_blocks)) return false;
            if (other.kind != Kind::kSpelled) {
                return other.has_type && are_other_types(kind_of(text), other.kind);
            }
            return std::ranges::all_of(
                other.texts, [&](const std::string& second) { return is_other(text, second); });
        });
    }

    // Whether objects of `one` have a member that objects of `other` have not, or only with other
    // values.
    bool has_what_lacks(const Schema& one, const Schema& other, int depth) {
        if (!looks_.take(one.members.size())) return false;
        return std::ranges::any_of(one.members, [&](const Schema::Member& member) {
            if (!member.is_required || !looks_.take(other.members.size())) return false;
            const auto found = std::ranges::find(other.members, member.name, &Schema::Member::name);
            if (found != other.members.end()) return are(member.schema, found->schema, depth + 1);
            return other.is_closed || (other.rest && are(member.schema, *other.rest, depth + 1));
        });
    }

    const SchemaList& schemas_;
    LookBudget& looks_;
};

}  // namespace

bool is_of_objects(const SchemaList& schemas) {
    // What leads back to itself adds nothing to what it may be.
    std::vector<bool> was_seen(schemas.size());
    std::vector<uint32_t> open = {0};
    while (!open.empty()) {
        const uint32_t place = open.back();
        open.pop_back();
        if (was_seen[place]) continue;
        was_seen[place] = true;
        const Schema& schema = schemas[place];
        if (schema.kind == Kind::kAnyOf) {
            open.insert(open.end(), schema.items.begin(), schema.items.end());
            continue;
        }
        const bool is_listed = schema.kind == Kind::kSpelled;
        const bool are_objects = std::ranges::all_of(
            schema.texts, [](const std::string& text) { return text.starts_with('{'); });
        if (schema.kind != Kind::kObject && !(is_listed && are_objects)) return false;
    }
    return true;
}

bool are_disjoint(const SchemaList& schemas, uint32_t one, uint32_t other, LookBudget& looks) {
    return DisjointSchemas(schemas, looks).are(one, other, 0);
}

}  // namespace afd::model
