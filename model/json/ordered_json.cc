// SPDX-License-Identifier: Apache-2.0
#include "model/json/ordered_json.h"

#include <nlohmann/json.hpp>

#include "model/json/json_builder.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

Result<OrderedJson> parse_within(std::string_view text,
                                 JsonLimits limits,
                                 const std::string& what) {
    JsonBuilder<OrderedJson> builder(std::move(limits));
    if (OrderedJson::sax_parse(
            text.begin(), text.end(), &builder, OrderedJson::input_format_t::json)) {
        return builder.take();
    }
    if (!builder.is_json()) return invalid_argument("{} is not valid JSON", with(what));
    return invalid_argument("{}: {}", with(what, builder.problem()));
}

JsonLimits ordered_limits() {
    return {.depth = kOrderedDepthMax,
            .members = kOrderedMembersMax,
            .values = kOrderedValuesMax,
            .keeps_long_integers = true};
}

struct Separators {
    const char* comma;
    const char* colon;
};

void write(const OrderedJson& json, const Separators& separators, std::string& out) {
    const bool is_object = json.is_object();
    if (is_long_integer(json)) {
        const auto& digits = json.get_binary();
        out.append(digits.begin(), digits.end());
    } else if (!is_object && !json.is_array()) {
        out += json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    } else {
        out += is_object ? '{' : '[';
        bool is_first = true;
        for (const auto& [key, value] : json.items()) {
            if (!is_first) out += separators.comma;
            is_first = false;
            if (is_object) write(OrderedJson(key), separators, out);
            if (is_object) out += separators.colon;
            write(value, separators, out);
        }
        out += is_object ? '}' : ']';
    }
}

}  // namespace

Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& what) {
    return parse_within(text, ordered_limits(), what);
}

Result<OrderedJson> parse_ordered_member(std::string_view text,
                                         const std::string& name,
                                         const std::string& what) {
    JsonLimits of_member = ordered_limits();
    of_member.only_member = name;
    AFD_ASSIGN(OrderedJson json, parse_within(text, std::move(of_member), what));
    if (!json.is_object()) return invalid_argument("{} is no object", with(what));
    return json;
}

// Nothing that is parsed is binary but for them.
bool is_long_integer(const OrderedJson& json) {
    return json.is_binary();
}

std::string compact_text(const OrderedJson& json) {
    std::string text;
    write(json, {",", ":"}, text);
    return text;
}

std::string spaced_text(const OrderedJson& json) {
    std::string text;
    write(json, {", ", ": "}, text);
    return text;
}

std::string shown_text(const nlohmann::ordered_json& json) {
    constexpr size_t kShown = 60;
    const std::string text = compact_text(json);
    const std::string_view start = start_of(text, kShown);
    return std::string(start).append(start.size() < text.size() ? "..." : "");
}

}  // namespace afd::model
