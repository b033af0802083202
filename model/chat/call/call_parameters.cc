// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_parameters.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/chat/call/call_syntax.h"
#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"
#include "model/json/ordered_json.h"

namespace afd::model {
namespace {

struct Parameter {
    std::string_view name;
    std::string_view value;
};

// Whether it may be the name of a function or parameter that stands between marks.
bool is_bare_name(std::string_view name) {
    return !strip(name).empty() && name.find_first_of("<>\n") == std::string_view::npos;
}

// Takes what is in front of `mark`, and it, from `text`.
std::optional<std::string_view> take_until(std::string_view mark, std::string_view& text) {
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view taken = text.substr(0, at);
    text.remove_prefix(at + mark.size());
    return taken;
}

bool take(std::string_view mark, std::string_view& text) {
    const std::string_view stripped = strip_left(text);
    if (!stripped.starts_with(mark)) return false;
    text = stripped.substr(mark.size());
    return true;
}

// A value and its end, behind which `text` goes on with the next parameter, or is over.
std::optional<std::string_view> take_value(const ParameterMarks& marks, std::string_view& text) {
    for (size_t at = 0; (at = text.find(marks.value_end, at)) != std::string_view::npos;) {
        const std::string_view behind = text.substr(at + marks.value_end.size());
        const std::string_view stripped = strip_left(behind);
        if (stripped.empty() || stripped.starts_with(marks.begin)) {
            std::string_view value = text.substr(0, at);
            text = behind;
            if (marks.has_lines && value.starts_with('\n')) value.remove_prefix(1);
            if (marks.has_lines && value.ends_with('\n')) value.remove_suffix(1);
            return value;
        }
        at += marks.value_end.size();
    }
    return std::nullopt;
}

std::optional<Parameter> take_parameter(const ParameterMarks& marks, std::string_view& text) {
    if (!take(marks.begin, text)) return std::nullopt;
    const auto name = take_until(marks.name_end, text);
    if (!name || !is_bare_name(*name)) return std::nullopt;
    if (!marks.value_begin.empty() && !take(marks.value_begin, text)) return std::nullopt;
    const auto value = take_value(marks, text);
    if (!value) return std::nullopt;
    return Parameter{strip(*name), *value};
}

// Of a line that begins a parameter, and does nothing else; empty: it is none.
std::string_view name_in(std::string_view line, const ParameterMarks& marks) {
    if (!line.starts_with(marks.begin) || !line.ends_with(marks.name_end)) return {};
    line.remove_prefix(marks.begin.size());
    line.remove_suffix(std::min(line.size(), marks.name_end.size()));
    return is_bare_name(line) ? strip(line) : std::string_view();
}

// Whether there is room for it.
bool put(const Parameter& parameter, std::vector<Parameter>& parameters) {
    const auto old = std::ranges::find(parameters, parameter.name, &Parameter::name);
    if (old != parameters.end()) {
        old->value = parameter.value;
        return true;
    }
    if (parameters.size() == kOrderedMembersMax) return false;
    parameters.push_back(parameter);
    return true;
}

// The same of it and those whose lines stand in its value: a model has left out the end of a value.
// With one in it the value may be a text that has such lines.
bool put_apart(Parameter parameter,
               const ParameterMarks& marks,
               std::vector<Parameter>& parameters) {
    std::string_view rest = parameter.value;
    const bool is_text = !marks.has_lines || rest.find(marks.value_end) != std::string_view::npos;
    while (!is_text && !rest.empty()) {
        const size_t line_end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, line_end);
        const std::string_view name = name_in(line, marks);
        rest.remove_prefix(std::min(line_end + 1, rest.size()));
        if (name.empty()) continue;
        const auto size = static_cast<size_t>(line.data() - parameter.value.data());
        parameter.value = parameter.value.substr(0, size == 0 ? 0 : size - 1);
        if (!put(parameter, parameters)) return false;
        parameter = {name, rest};
    }
    return put(parameter, parameters);
}

}  // namespace

std::optional<ChatEvent> read_parameter_call(std::string_view function,
                                             std::string_view text,
                                             const ParameterMarks& marks,
                                             const ParameterTypes& types) {
    if (!is_bare_name(function)) return std::nullopt;
    std::vector<Parameter> parameters;
    while (!strip(text).empty()) {
        const auto parameter = take_parameter(marks, text);
        if (!parameter || !put_apart(*parameter, marks, parameters)) return std::nullopt;
    }
    std::string object = "{";
    for (const auto& [name, value] : parameters) {
        if (object.size() > 1) object += ", ";
        object += spaced_text(nlohmann::ordered_json(std::string(name)));
        object += ": " + types.json_of(strip(function), name, value);
    }
    object += '}';
    return called(function, object);
}

}  // namespace afd::model
