// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/response_program.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Writes what reads any text up to the first `end`, and it, in front of `next`; none of `others`
// comes before. Each state has read so many bytes of some of these marks; as '<' is the first byte
// of each and no other, a byte that does not go on begins them anew or not at all. FF is no byte of
// a text. REQUIRES: no mark begins with another.
class TextBefore {
  public:
    TextBefore(ByteProgram& program,
               std::string_view end,
               std::span<const std::string_view> others,
               ByteProgram::Node next)
        : program_(program),
          end_(end),
          marks_(others.begin(), others.end()),
          next_(next),
          special_(program.literal(VocabularyTrie::kMark + std::string(end), next)),
          none_(program.reserve()),
          one_(program.reserve()) {
        marks_.push_back(end);
    }

    ByteProgram::Node write() {
        program_.become_split(one_, behind("<"), special_);
        program_.become_split(none_,
                              program_.either(program_.bytes(begin_, one_), special_),
                              program_.bytes(any_ & ~begin_, none_));
        return none_;
    }

  private:
    // Any byte behind `read`, which some marks begin with.
    ByteProgram::Node behind(const std::string& read) {
        ByteSet wanted;
        for (const std::string_view mark : marks_) {
            if (mark.starts_with(read)) wanted.set(static_cast<uint8_t>(mark[read.size()]));
        }
        ByteProgram::Node any = program_.either(program_.bytes(begin_, one_),
                                                program_.bytes(any_ & ~(begin_ | wanted), none_));
        for (unsigned byte = 0; byte < wanted.size(); ++byte) {
            if (!wanted.test(byte)) continue;
            const std::string more = read + static_cast<char>(byte);
            const bool is_mark = std::ranges::find(marks_, more) != marks_.end();
            if (is_mark && more != end_) continue;
            const ByteProgram::Node on = is_mark ? next_ : program_.either(behind(more), special_);
            any = program_.either(program_.bytes(byte_range(byte, byte), on), any);
        }
        return any;
    }

    const ByteSet begin_ = byte_range('<', '<');
    const ByteSet any_ = byte_range(0, 0xfe);
    ByteProgram& program_;
    const std::string_view end_;
    std::vector<std::string_view> marks_;  // All.
    const ByteProgram::Node next_;
    const ByteProgram::Node special_;  // The token of `end_`.
    const ByteProgram::Node none_;     // Nothing of a mark was read,
    const ByteProgram::Node one_;      // and its first byte.
};

// Between a thought and the answer.
ByteProgram::Node up_to_two_lines(ByteProgram& program, ByteProgram::Node next) {
    const ByteProgram::Node second = program.either(next, program.literal("\n", next));
    return program.either(next, program.literal("\n", second));
}

// Messages of gpt-oss in `analysis`, and the header of the one whose text begins at `next`. A
// thought has no mark that ends a message for who reads it (channel_parser.h).
ByteProgram::Node in_final_channel(ByteProgram& program, ByteProgram::Node next) {
    constexpr std::array<std::string_view, 4> kOtherEnds = {
        "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
    const auto headed = [&](std::string_view channel, ByteProgram::Node text) {
        return mark(
            program, "<|channel|>", program.literal(channel, mark(program, "<|message|>", text)));
    };
    const ByteProgram::Node start = program.reserve();
    const ByteProgram::Node more = mark(program, "<|start|>", program.literal("assistant", start));
    const ByteProgram::Node thought = TextBefore(program, "<|end|>", kOtherEnds, more).write();
    program.become_split(start, headed("final", next), headed("analysis", thought));
    return start;
}

// What of a thought comes before the answer that begins at `next`.
ByteProgram::Node with_thought(ByteProgram& program,
                               const ResponseFormat& format,
                               ByteProgram::Node next) {
    if (format.in_final_channel()) return in_final_channel(program, next);
    if (!format.thinks_first() && !format.may_think()) return next;
    const ByteProgram::Node started =
        TextBefore(program, kThoughtEnd, {}, up_to_two_lines(program, next)).write();
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
