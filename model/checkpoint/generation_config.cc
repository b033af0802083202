// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/generation_config.h"

#include <nlohmann/json.hpp>

#include "model/checkpoint/token_ids.h"
#include "model/json/json_document.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// A number in [low, high], if the key is there.
Result<std::optional<double>> read_number(
    const Json& object, const char* key, double low, double high, const std::string& origin) {
    const auto at = object.find(key);
    if (at == object.end() || at->is_null()) return std::optional<double>();
    if (at->is_number()) {
        const double number = at->get<double>();
        if (number >= low && number <= high) return std::optional(number);
    }
    return Error{
        Code::kInvalidArgument,
        origin + ": " + key + " is " + at->dump(-1, ' ', false, Json::error_handler_t::replace) +
            "; supported: a number in [" + Json(low).dump() + ", " + Json(high).dump() + "]"};
}

struct Setting {
    const char* key;
    double low;
    double high;
    std::optional<float> GenerationConfig::*member;
};
constexpr Setting kSettings[] = {
    {"temperature", 0, 2, &GenerationConfig::temperature},
    {"min_p", 0, 1, &GenerationConfig::min_p},
    {"repetition_penalty", 0.01, 100, &GenerationConfig::repetition_penalty},
    {"presence_penalty", -2, 2, &GenerationConfig::presence_penalty},
    {"frequency_penalty", -2, 2, &GenerationConfig::frequency_penalty}};

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view text,
                                                 const ModelConfig& config,
                                                 const std::string& origin) {
    GenerationConfig generation;
    generation.eos_token_ids = config.eos_token_ids;
    if (text.empty()) return generation;
    AFD_ASSIGN(const Json object, parse_json(text, origin));
    if (!object.is_object()) return Error{Code::kDataLoss, origin + ": not a JSON object"};

    AFD_ASSIGN(const auto eos, read_token_ids(object, "eos_token_id", config.vocab_size, origin));
    // This file is about generating, so it wins over config.json.
    if (!eos.empty()) generation.eos_token_ids = eos;
    for (const Setting& setting : kSettings) {
        AFD_ASSIGN(const auto number,
                   read_number(object, setting.key, setting.low, setting.high, origin));
        if (number) generation.*setting.member = static_cast<float>(*number);
    }
    AFD_ASSIGN(const auto top_p, read_number(object, "top_p", 0, 1, origin));
    // 0 and −1 are how files of this kind say "off".
    if (top_p && *top_p > 0) generation.top_p = static_cast<float>(*top_p);
    AFD_ASSIGN(const auto top_k, read_number(object, "top_k", -1, 1 << 24, origin));
    if (top_k && *top_k > 0) generation.top_k = static_cast<uint32_t>(*top_k);
    return generation;
}

}  // namespace afd::model
