// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/response_program.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/grammar/grammar_automaton.h"
#include "model/grammar/schema/json_rules.h"
#include "model/grammar/schema/schema_program.h"
#include "model/grammar/schema/schema_reader.h"
#include "model/grammar/schema/schema_types.h"
#include "model/grammar/vocabulary_trie.h"
#include "model/json/ordered_json.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"
#include "proto/sampling.pb.h"

namespace afd::model {
namespace {

constexpr std::string_view kThoughtBegin = "<think>";
constexpr std::string_view kThoughtEnd = "</think>";

// A token of this text that is special, or the text.
ByteProgram::Node mark(ByteProgram& program, std::string_view text, ByteProgram::Node next) {
    return program.either(program.literal(VocabularyTrie::kMark + std::string(text), next),
                          program.literal(text, next));
}

// The node in front of `next` that reads any text up to the first </think>, and it. Each state has
// read so many bytes of the mark; as '<' is its first byte and no other, a byte that does not go on
// begins it anew or not at all. FF is no byte of a text.
ByteProgram::Node thought(ByteProgram& program, ByteProgram::Node next) {
    const ByteSet begin = byte_range('<', '<');
    const ByteSet any = byte_range(0, 0xfe);
    const ByteProgram::Node special =
        program.literal(VocabularyTrie::kMark + std::string(kThoughtEnd), next);
    const ByteProgram::Node none = program.reserve();
    const ByteProgram::Node one = program.reserve();
    ByteProgram::Node more = next;
    for (size_t num_read = kThoughtEnd.size() - 1; num_read > 0; --num_read) {
        const auto wanted = static_cast<uint8_t>(kThoughtEnd[num_read]);
        const ByteSet goes_on = byte_range(wanted, wanted);
        const ByteProgram::Node back =
            program.either(program.either(program.bytes(begin, one), special),
                           program.bytes(any & ~(begin | goes_on), none));
        const ByteProgram::Node on = program.bytes(goes_on, more);
        if (num_read > 1) {
            more = program.either(on, back);
        } else {
            program.become_split(one, on, back);
        }
    }
    program.become_split(none,
                         program.either(program.bytes(begin, one), special),
                         program.bytes(any & ~begin, none));
    return none;
}

// Between a thought and the answer.
ByteProgram::Node up_to_two_lines(ByteProgram& program, ByteProgram::Node next) {
    const ByteProgram::Node second = program.either(next, program.literal("\n", next));
    return program.either(next, program.literal("\n", second));
}

// What of a thought comes before the answer that begins at `next`.
ByteProgram::Node with_thought(ByteProgram& program,
                               const ResponseFormat& format,
                               ByteProgram::Node next) {
    if (!format.thinks_first() && !format.may_think()) return next;
    const ByteProgram::Node started = thought(program, up_to_two_lines(program, next));
    if (format.thinks_first()) return started;
    return program.either(next, mark(program, kThoughtBegin, started));
}

using Parts = google::protobuf::RepeatedPtrField<ToolCallFormat::Part>;

ByteProgram::Node parts(ByteProgram& program, const Parts& parts, ByteProgram::Node next) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        next = part->is_mark() ? mark(program, part->text(), next)
                               : program.literal(part->text(), next);
    }
    return next;
}

bool is_name_byte(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

Result<> check_tools(const ToolCallFormat& format) {
    constexpr int kToolsMax = 128;
    constexpr size_t kNameBytesMax = 64;
    if (format.tools().empty() || format.tools_size() > kToolsMax) {
        return invalid_argument("response_format has {} tools: it must have 1 to {}",
                                with(format.tools_size(), kToolsMax));
    }
    for (const ToolCallFormat::Tool& tool : format.tools()) {
        const std::string& name = tool.name();
        if (!is_valid_utf8(name)) {
            return invalid_argument("response_format has a tool whose name is not UTF-8");
        }
        const bool is_name = !name.empty() && name.size() <= kNameBytesMax &&
                             std::all_of(name.begin(), name.end(), is_name_byte);
        if (is_name) continue;
        return invalid_argument(
            "response_format has a tool '{}': a name that is to be called must have 1 to {} "
            "letters, digits, '_', '-' and '.'",
            with(start_of(name, kNameBytesMax), kNameBytesMax));
    }
    return {};
}

// A byte that is none of a text would stand for a mark (vocabulary_trie.h).
Result<> check_parts(const ToolCallFormat& format) {
    for (const Parts* parts : {&format.before(), &format.between(), &format.behind()}) {
        const bool is_text = std::all_of(parts->begin(), parts->end(), [](const auto& part) {
            return is_valid_utf8(part.text());
        });
        if (is_text) continue;
        return invalid_argument("response_format has a part of a tool_call that is not UTF-8");
    }
    return {};
}

Result<ByteProgram::Rule> arguments_of(const ToolCallFormat::Tool& tool,
                                       LookBudget& looks,
                                       JsonRules& json,
                                       ByteProgram& program) {
    if (tool.parameters().empty()) {
        const ByteProgram::Rule none = program.declare();
        program.define(none, program.literal("{}", program.end()));
        return none;
    }
    AFD_ASSIGN(JsonSchema read, read_json_schema(tool.parameters(), looks));
    if (!is_of_objects(read.schemas)) {
        return invalid_argument(
            "json_schema: #: the arguments of a call are an object, and this schema allows other "
            "values");
    }
    return add_schema(std::move(read.schemas), json, program);
}

Result<std::shared_ptr<ByteProgram>> tool_call(const ToolCallFormat& format) {
    AFD_TRY(check_tools(format));
    AFD_TRY(check_parts(format));
    auto program = std::make_shared<ByteProgram>();
    JsonRules json(*program);
    const ByteProgram::Node behind = parts(*program, format.behind(), program->end());
    std::optional<ByteProgram::Node> any;
    LookBudget looks(kDisjointLooksMax);
    for (const ToolCallFormat::Tool& tool : format.tools()) {
        const Result<ByteProgram::Rule> arguments = arguments_of(tool, looks, json, *program);
        if (!arguments.ok()) {
            return Error{
                arguments.error().code,
                "the parameters of " + tool.name() + " are refused: " + arguments.error().message};
        }
        const ByteProgram::Node one = program->literal(
            tool.name(),
            parts(*program, format.between(), program->call(arguments.value(), behind)));
        any = any ? program->either(*any, one) : one;
    }
    program->start_at(parts(*program, format.before(), *any));
    const Result<> checked = check_program(*program);
    if (checked.ok()) return program;
    return Error{checked.error().code, "the tools are refused: " + checked.error().message};
}

static_assert(GrammarAutomaton::kCallDepthMax <= kOrderedDepthMax,
              "whoever reads a call must take it as deep as the model may write it");

Result<std::shared_ptr<ByteProgram>> answer(const ResponseFormat& format) {
    if (format.json_object()) return any_object_program();
    if (format.has_tool_call()) return tool_call(format.tool_call());
    if (format.kind_case() == ResponseFormat::kJsonSchema) {
        auto program = schema_program(format.json_schema());
        if (program.ok()) return program;
        return Error{program.error().code,
                     "response_format is refused: " + program.error().message};
    }
    return invalid_argument(
        "response_format is empty: it must be json_object, a json_schema or a tool_call");
}

}  // namespace

Result<std::shared_ptr<const ByteProgram>> response_program(const ResponseFormat& format) {
    AFD_ASSIGN(const std::shared_ptr<ByteProgram> program, answer(format));
    program->start_at(with_thought(*program, format, program->start()));
    if (program->is_full()) {
        return invalid_argument("response_format needs more than {} steps",
                                with(ByteProgram::kNodesMax));
    }
    return std::shared_ptr<const ByteProgram>(program);
}

}  // namespace afd::model
