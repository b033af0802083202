// SPDX-License-Identifier: Apache-2.0
#include "model/family/rope_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/family/decoder_keys.h"
#include "ops/attention/rope.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// That which counts where both are given comes first, as in transformers: newer files have
// rope_parameters, to which somebody may have added a rope_scaling as it is documented.
constexpr std::array kRopeObjects = {"rope_scaling", "rope_parameters"};

constexpr const char* kOriginalLength = "original_max_position_embeddings";
constexpr const char* kRotaryFactor = "partial_rotary_factor";
constexpr const char* kAttentionFactor = "attention_factor";

// Other programs multiply cos and sin by it where it is given; here it can only repeat what the
// other keys make of it (ops/attention/rope.h).
void check_attention_factor(KeyReader& keys, const ops::YarnScaling& yarn) {
    if (keys.find(kAttentionFactor) == nullptr) return;
    const double own = ops::yarn_mscale(yarn.factor, yarn.mscale) /
                       ops::yarn_mscale(yarn.factor, yarn.mscale_all_dim);
    constexpr double kRounding = 1e-4;  // Of the decimal digits in a file.
    if (std::abs(keys.positive(kAttentionFactor, {}) - own) <= kRounding) return;
    keys.refuse(Code::kUnimplemented,
                kAttentionFactor,
                fmt::format("none, or {:.6g} (mscale is used)", own));
}

ops::YarnScaling read_yarn(KeyReader& keys, const ModelConfig& config) {
    ops::YarnScaling yarn;
    yarn.factor = keys.positive("factor", {});
    yarn.beta_fast = keys.positive("beta_fast", 32.0);
    yarn.beta_slow = keys.positive("beta_slow", 1.0);
    yarn.mscale = keys.not_negative("mscale", 1.0);
    yarn.mscale_all_dim = keys.not_negative("mscale_all_dim", 0.0);
    const bool has_both =
        keys.find("mscale") != nullptr && yarn.mscale > 0 && yarn.mscale_all_dim > 0;
    // With one of them programs differ.
    if (!has_both && (yarn.mscale != 1 || yarn.mscale_all_dim != 0)) {
        keys.refuse(Code::kUnimplemented,
                    keys.find("mscale") != nullptr ? "mscale" : "mscale_all_dim",
                    "none, or both mscale and mscale_all_dim, above 0");
    }
    yarn.original_max_positions =
        keys.count(kOriginalLength, 1, kContextMax, config.context_length);
    check_attention_factor(keys, yarn);
    yarn.truncate = keys.flag("truncate", true);
    return yarn;
}

// By YaRN. Who adds it as Qwen documents leaves max_position_embeddings as it was; in files of
// DeepSeek, Kimi and gpt-oss that is the product already.
void lengthen_context(KeyReader& keys, ModelConfig& config) {
    const double original = config.yarn->original_max_positions;
    const double length = config.yarn->factor * original;
    if (length > kContextMax) {
        return keys.refuse(
            Code::kInvalidArgument,
            "factor",
            fmt::format("at most {}, for {} tokens", kContextMax / original, kContextMax));
    }
    config.context_length = std::max(config.context_length, static_cast<uint32_t>(length));
}

// A number above 0 of that key, which may stand in the file itself, in rope_parameters and in
// rope_scaling, but is the same wherever it stands: which one counts differs between programs and
// their versions. `check` is given each place and its number.
template <typename Check>
std::optional<double> read_rope_number(KeyReader& keys, const char* key, const Check& check) {
    std::optional<double> number;
    const auto look = [&](KeyReader& place) {
        if (place.find(key) == nullptr) return;
        const double own = place.positive(key, {});
        check(place, own);
        if (number && own != *number) {
            place.refuse(Code::kInvalidArgument,
                         key,
                         fmt::format("{}, as another part of the file has it", *number));
        }
        number = own;
    };
    look(keys);
    for (const char* name : kRopeObjects) {
        const Json* object = keys.find(name);
        // What is no object is refused where the rest of it would be read.
        if (object == nullptr || !object->is_object()) continue;
        KeyReader inner(*object, keys.origin() + ": " + name);
        look(inner);
        keys.adopt(inner);
    }
    return number;
}

// A way to scale the rotation: its type in a file, and the keys that are read with it.
struct Scaling {
    const char* type;
    std::span<const std::string_view> keys;
};

constexpr std::array<std::string_view, 8> kYarnKeys = {"factor",
                                                       "beta_fast",
                                                       "beta_slow",
                                                       "mscale",
                                                       "mscale_all_dim",
                                                       kOriginalLength,
                                                       kAttentionFactor,
                                                       "truncate"};
constexpr std::array<std::string_view, 5> kLongRopeKeys = {
    kOriginalLength, "short_factor", "long_factor", "short_mscale", "long_mscale"};

// The first key of the object that has a value and is none of `known`, nor one that may stand in
// any; empty: there is none.
std::string other_key(const Json& object, std::span<const std::string_view> known) {
    for (const auto& [key, value] : object.items()) {
        const bool is_common =
            key == "type" || key == "rope_type" || key == "rope_theta" || key == kRotaryFactor;
        if (is_common || value.is_null()) continue;
        if (std::ranges::find(known, key) == known.end()) return key;
    }
    return {};
}

// Whether the object has this scaling; else it has none, or a problem stays in `inner`.
bool has_scaling(KeyReader& inner, const Json& object, const Scaling& scaling) {
    const char* type_key = inner.find("rope_type") != nullptr ? "rope_type" : "type";
    if (inner.find(type_key) == nullptr) {
        // Without a type its other keys mean nothing, or something else in each program; an object
        // for each type of layer has no type at all.
        const std::string key = other_key(object, {});
        if (key.empty()) return false;
        inner.refuse(
            Code::kInvalidArgument,
            "rope_type",
            fmt::format(
                "\"default\", \"{}\"; without it nothing says what {} is for", scaling.type, key));
        return false;
    }
    if (inner.choice(type_key, "default", {"default", scaling.type}) == "default") return false;
    const std::string unread = other_key(object, scaling.keys);
    // It might change the computation: then the model would answer, and wrongly.
    if (!unread.empty()) {
        inner.refuse(Code::kUnimplemented,
                     unread,
                     fmt::format("none (no setting of \"{}\" that is known here)", scaling.type));
    }
    return !inner.failed();
}

// Reads rope_theta, then the object that says how the rotation is scaled, if there is one: where
// it is, by `read`.
template <typename Read>
void read_rope_object(KeyReader& keys,
                      ModelConfig& config,
                      const Scaling& scaling,
                      const Read& read) {
    config.rope_theta =
        read_rope_number(keys, "rope_theta", [](KeyReader&, double) {}).value_or(config.rope_theta);
    for (const char* name : kRopeObjects) {
        const Json* object = keys.find(name);
        if (object == nullptr || (object->is_object() && object->empty())) continue;
        if (!object->is_object()) {
            return keys.refuse(Code::kInvalidArgument, name, "an object or null");
        }
        KeyReader inner(*object, keys.origin() + ": " + name);
        config.yarn.reset();
        if (has_scaling(inner, *object, scaling)) read(inner);
        return keys.adopt(inner);
    }
}

}  // namespace

void read_rope(KeyReader& keys, ModelConfig& config) {
    read_rope_object(keys, config, {"yarn", kYarnKeys}, [&](KeyReader& inner) {
        config.yarn = read_yarn(inner, config);
        if (inner.find(kOriginalLength) != nullptr) lengthen_context(inner, config);
    });
}

void read_long_rope(KeyReader& keys, size_t dim, ModelConfig& config) {
    read_rope_object(keys, config, {"longrope", kLongRopeKeys}, [&](KeyReader& inner) {
        KeyReader& from = inner.find(kOriginalLength) != nullptr ? inner : keys;
        const bool is_long =
            config.context_length > from.count(kOriginalLength, 1, kContextMax, {});
        // Both, so that a file is wrong or right whatever its context.
        const auto short_factors = inner.positives("short_factor", dim / 2);
        const auto long_factors = inner.positives("long_factor", dim / 2);
        const double short_scale = inner.positive("short_mscale", {});
        const double long_scale = inner.positive("long_mscale", {});
        config.long_rope = ops::LongRope{.factors = is_long ? long_factors : short_factors,
                                         .scale = is_long ? long_scale : short_scale};
    });
}

size_t read_rotary_dim(KeyReader& keys, size_t head_dim, size_t fallback) {
    const auto whole = static_cast<double>(head_dim);
    const auto check = [&](KeyReader& place, double dim) {
        if (dim <= whole && std::fmod(dim, 2.0) == 0) return;
        place.refuse(Code::kInvalidArgument,
                     kRotaryFactor,
                     fmt::format("a part of head_dim, {}, that is an even number", head_dim));
    };
    const auto factor = read_rope_number(
        keys, kRotaryFactor, [&](KeyReader& place, double own) { check(place, own * whole); });
    if (!factor) check(keys, static_cast<double>(fallback));
    // A refused number need not fit.
    if (keys.failed()) return head_dim;
    return factor ? static_cast<size_t>(*factor * whole) : fallback;
}

void refuse_partial_rotation(KeyReader& keys) {
    read_rope_number(keys, kRotaryFactor, [](KeyReader& place, double own) {
        if (own != 1) place.refuse(Code::kUnimplemented, kRotaryFactor, "1");
    });
}

}  // namespace afd::model
