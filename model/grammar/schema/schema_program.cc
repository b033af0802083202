// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/schema_program.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/grammar/schema/endless_schemas.h"
#include "model/grammar/schema/json_rules.h"
#include "model/grammar/schema/schema_reader.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Node = ByteProgram::Node;
using Rule = ByteProgram::Rule;

// Says which steps of a count are alike. They are written from the last to the first.
class CountedSteps {
  public:
    // Each reads `bytes_least` and more.
    CountedSteps(ByteProgram& program, const Schema::Count& length, size_t bytes_least)
        : program_(program), length_(length), enough_(ByteProgram::kShortBytes / bytes_least + 2) {}

    // Step i was written: the nodes from `begin` on.
    void add(size_t i, size_t begin) {
        const size_t least = length_.least - std::min(length_.least, i);
        const size_t most = length_.most ? *length_.most - i : enough_;
        const Step step{.num_nodes = program_.num_nodes() - begin,
                        .least = std::min(least, enough_),
                        .most = std::min(most, enough_)};
        if (step == last_) {
            program_.become_alike(
                static_cast<Node>(begin), static_cast<Node>(last_begin_), step.num_nodes);
        }
        last_ = step;
        last_begin_ = begin;
    }

  private:
    // As many more as a short text comes to, or as there are.
    struct Step {
        size_t num_nodes = 0;
        size_t least = 0;  // That must come, this one included.
        size_t most = 0;   // That may.
        bool operator==(const Step&) const = default;
    };

    ByteProgram& program_;
    const Schema::Count& length_;
    const size_t enough_;
    Step last_;
    size_t last_begin_ = 0;
};

// Writes each schema as a rule of the same index behind those of JSON.
class SchemaWriter {
  public:
    SchemaWriter(const SchemaList& schemas, JsonRules& json, ByteProgram& program)
        : schemas_(schemas), program_(program), json_(json) {}

    // The rule of the whole.
    Rule write() {
        for (size_t i = 0; i < schemas_.size(); ++i) rules_.push_back(program_.declare());
        for (size_t i = 0; i < schemas_.size() && !program_.is_full(); ++i) {
            program_.define(rules_[i], start_of(schemas_[i]));
        }
        return rules_[0];
    }

  private:
    Node start_of(const Schema& schema) {
        const Node end = program_.end();
        switch (schema.kind) {
            case Schema::Kind::kAny:
                return program_.call(json_.value(), end);
            case Schema::Kind::kNull:
                return program_.literal("null", end);
            case Schema::Kind::kBoolean:
                return json_.boolean(end);
            case Schema::Kind::kInteger:
                return schema.range ? schema.range->write(program_, end)
                                    : program_.call(json_.integer(), end);
            case Schema::Kind::kNumber:
                return schema.range ? schema.range->write(program_, end)
                                    : program_.call(json_.number(), end);
            case Schema::Kind::kString:
                return schema.format ? program_.call(json_.of_format(*schema.format), end)
                                     : string(schema.length, end);
            case Schema::Kind::kArray:
                return array(schema, end);
            case Schema::Kind::kObject:
                return object(schema, end);
            case Schema::Kind::kSpelled:
                return spelled(schema.texts, end);
            case Schema::Kind::kAnyOf:
                return choice(schema.items, end);
        }
        return end;
    }

    Node choice(const std::vector<uint32_t>& items, Node end) {
        Node node = program_.call(rules_[items[0]], end);
        for (size_t i = 1; i < items.size() && !program_.is_full(); ++i) {
            node = program_.either(node, program_.call(rules_[items[i]], end));
        }
        return node;
    }

    Node spelled(std::vector<std::string> texts, Node end) {
        std::sort(texts.begin(), texts.end());
        texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
        return behind(texts, 0, end);
    }

    // What follows the first `depth` bytes of `texts`, which have these in common; ascending, each
    // once. What more they have in common is written once: each text by itself would be a way of
    // its own.
    Node behind(std::span<const std::string> texts, size_t depth, Node end) {
        const std::string& first = texts.front();
        const auto last_shared = std::ranges::mismatch(first, texts.back()).in1;
        const auto shared = static_cast<size_t>(last_shared - first.begin());
        size_t begin = 0;
        std::optional<Node> any;
        if (first.size() == shared) {
            any = end;
            begin = 1;
        }
        while (begin < texts.size()) {
            size_t stop = begin + 1;
            while (stop < texts.size() && texts[stop][shared] == texts[begin][shared]) ++stop;
            const Node one = behind(texts.subspan(begin, stop - begin), shared, end);
            any = any ? program_.either(*any, one) : one;
            begin = stop;
        }
        return program_.literal(std::string_view(first).substr(depth, shared - depth), *any);
    }

    // Counted characters are written out one by one.
    Node string(const Schema::Count& length, Node end) {
        if (length.least == 0 && !length.most) return program_.call(json_.string(), end);
        const Node close = program_.literal("\"", end);
        Node node = close;
        if (!length.most) {
            node = program_.reserve();
            program_.become_split(node, close, program_.call(json_.character(), node));
        }
        CountedSteps steps(program_, length, 1);
        for (size_t i = length.most.value_or(length.least); i-- > 0 && !program_.is_full();) {
            const size_t begin = program_.num_nodes();
            node = program_.call(json_.character(), node);
            if (i >= length.least) node = program_.either(close, node);
            steps.add(i, begin);
        }
        return program_.literal("\"", node);
    }

    // Bytes that a text of `schema` has at least; of what lies deep within it, one.
    size_t bytes_least(const Schema& schema, int depth = 0) const {
        constexpr int kLooksMax = 3;
        const auto inner = [&](uint32_t item) {
            return depth < kLooksMax ? bytes_least(schemas_[item], depth + 1) : 1;
        };
        size_t least = 1;
        if (schema.kind == Schema::Kind::kString) least = 2 + schema.length.least;
        if (schema.kind == Schema::Kind::kObject) {
            least = 2;
            for (const Schema::Member& member : schema.members) {
                if (!member.is_required) continue;
                // The quotes and ':' aside, a name has as many bytes, or more where it is escaped.
                least += 3 + member.name.size() + inner(member.schema);
            }
        }
        return least;
    }

    Node comma(Node next) { return program_.literal(",", program_.call(json_.blanks(), next)); }

    // The elements of an array: so many that are written out one by one, and whether any number of
    // further ones may follow.
    struct Elements {
        size_t num_written = 0;
        bool has_more = false;
    };
    static Elements elements_of(const Schema& schema) {
        const size_t num_first = schema.items.size();
        const std::optional<size_t> most = schema.length.most;
        if (!schema.rest) return {most ? std::min(num_first, *most) : num_first, false};
        if (most) return {*most, false};
        // The first one is without a comma, so it is none of those that a loop writes.
        return {std::max({schema.length.least, num_first, size_t{1}}), true};
    }

    // '[' blanks, elements with ',' blanks between them, blanks ']'.
    Node array(const Schema& schema, Node end) {
        const Node close = program_.call(json_.blanks(), program_.literal("]", end));
        const size_t num_first = schema.items.size();
        const auto rule_at = [&](size_t i) {
            return rules_[i < num_first ? schema.items[i] : *schema.rest];
        };
        const Elements elements = elements_of(schema);
        Node node = close;
        if (elements.has_more) {
            node = program_.reserve();
            program_.become_split(node, close, comma(program_.call(rules_[*schema.rest], node)));
        }
        // With its comma.
        const size_t step_bytes = 1 + (schema.rest ? bytes_least(schemas_[*schema.rest]) : 1);
        CountedSteps steps(program_, schema.length, step_bytes);
        for (size_t i = elements.num_written; i-- > 0 && !program_.is_full();) {
            const size_t begin = program_.num_nodes();
            node = program_.call(rule_at(i), node);
            node = i == 0 ? program_.call(json_.blanks(), node) : comma(node);
            if (i >= schema.length.least) node = program_.either(close, node);
            if (i >= std::max(num_first, size_t{1})) steps.add(i, begin);
        }
        return program_.literal("[", node);
    }

    // ':' blanks and the value, behind a name.
    Node value_of(uint32_t schema, Node next) {
        return program_.literal(":",
                                program_.call(json_.blanks(), program_.call(rules_[schema], next)));
    }

    Node object(const Schema& schema, Node end) {
        const Node close = program_.call(json_.blanks(), program_.literal("}", end));
        // What follows if no member has come yet, and if one has.
        Node at_first = close;
        Node later = close;
        if (schema.rest) {
            std::vector<std::string> names;
            for (const Schema::Member& member : schema.members) names.push_back(member.name);
            const Node more = program_.reserve();
            const Node name = json_.other_name(names, value_of(*schema.rest, more));
            program_.become_split(more, close, comma(name));
            later = more;
            at_first = program_.either(close, program_.call(json_.blanks(), name));
        }
        for (auto member = schema.members.rbegin();
             member != schema.members.rend() && !program_.is_full();
             ++member) {
            const Node name = program_.literal(nlohmann::json(member->name).dump(),
                                               value_of(member->schema, later));
            const Node as_first = program_.call(json_.blanks(), name);
            const Node as_later = comma(name);
            at_first = member->is_required ? as_first : program_.either(as_first, at_first);
            later = member->is_required ? as_later : program_.either(as_later, later);
        }
        return program_.literal("{", at_first);
    }

    const SchemaList& schemas_;
    ByteProgram& program_;
    JsonRules& json_;
    std::vector<Rule> rules_;
};

}  // namespace

Result<Rule> add_schema(SchemaList schemas, JsonRules& json, ByteProgram& program) {
    AFD_TRY(drop_endless(schemas));
    return SchemaWriter(schemas, json, program).write();
}

Result<> check_program(const ByteProgram& program) {
    if (program.is_full()) {
        return invalid_argument(
            "json_schema: #: it needs more than {} steps; minItems, maxItems, "
            "minLength, maxLength and long lists add up",
            with(ByteProgram::kNodesMax));
    }
    if (program.has_left_recursion()) {
        return invalid_argument("json_schema: #: a $ref leads back to itself before any text");
    }
    return {};
}

Result<std::shared_ptr<ByteProgram>> schema_program(std::string_view schema) {
    AFD_ASSIGN(JsonSchema read, read_json_schema(schema));
    auto program = std::make_shared<ByteProgram>();
    JsonRules json(*program);
    AFD_ASSIGN(const Rule rule, add_schema(std::move(read.schemas), json, *program));
    program->start_at(program->call(rule, program->end()));
    AFD_TRY(check_program(*program));
    return program;
}

std::shared_ptr<ByteProgram> any_object_program() {
    auto program = std::make_shared<ByteProgram>();
    const JsonRules json(*program);
    program->start_at(program->call(json.object(), program->end()));
    return program;
}

}  // namespace afd::model
