// SPDX-License-Identifier: Apache-2.0
#include "model/chat/ordered_json.h"

#include <nlohmann/json.hpp>

#include "model/checkpoint/json_builder.h"
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
    return {.depth = kOrderedDepthMax, .members = kOrderedMembersMax, .values = kOrderedValuesMax};
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

}  // namespace afd::model
