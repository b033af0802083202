// SPDX-License-Identifier: Apache-2.0
#include "model/family/rope_keys.h"

#include <nlohmann/json.hpp>
#include <string>

#include "model/family/decoder_keys.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

ops::YarnScaling read_yarn(KeyReader& keys, const ModelConfig& config) {
    ops::YarnScaling yarn;
    yarn.factor = keys.positive("factor", {});
    yarn.beta_fast = keys.positive("beta_fast", 32.0);
    yarn.beta_slow = keys.positive("beta_slow", 1.0);
    yarn.mscale = keys.not_negative("mscale", 1.0);
    yarn.mscale_all_dim = keys.not_negative("mscale_all_dim", 0.0);
    yarn.original_max_positions =
        keys.count("original_max_position_embeddings", 1, kContextMax, config.context_length);
    // A setting that would change the computation is refused and not passed over: the model would
    // answer, and wrongly.
    keys.refuse_if_given("attention_factor", "none (mscale is used)");
    yarn.truncate = keys.flag("truncate", true);
    return yarn;
}

// Reads rope_theta, then by `read` the object that says how the rotation is scaled, if there is
// one.
template <typename Read>
void read_rope_object(KeyReader& keys, ModelConfig& config, const Read& read) {
    config.rope_theta = keys.positive("rope_theta", config.rope_theta);
    // Newer files have all of it in one object, older ones the theta beside it.
    const bool is_new = keys.find("rope_parameters") != nullptr;
    const char* name = is_new ? "rope_parameters" : "rope_scaling";
    const Json* object = keys.find(name);
    if (object == nullptr) return;
    if (!object->is_object()) {
        return keys.refuse(Code::kInvalidArgument, name, "an object or null");
    }
    KeyReader inner(*object, keys.origin() + ": " + name);
    if (is_new) config.rope_theta = inner.positive("rope_theta", config.rope_theta);
    read(inner, inner.find("rope_type") != nullptr ? "rope_type" : "type");
    keys.adopt(inner);
}

}  // namespace

void read_rope(KeyReader& keys, ModelConfig& config) {
    read_rope_object(keys, config, [&](KeyReader& inner, const char* type_key) {
        const std::string type = inner.choice(type_key, "default", {"default", "yarn"});
        if (type == "yarn") config.yarn = read_yarn(inner, config);
    });
}

void read_long_rope(KeyReader& keys, size_t dim, ModelConfig& config) {
    read_rope_object(keys, config, [&](KeyReader& inner, const char* type_key) {
        if (inner.choice(type_key, "default", {"default", "longrope"}) == "default") return;
        const char* original = "original_max_position_embeddings";
        KeyReader& from = inner.find(original) != nullptr ? inner : keys;
        const bool is_long = config.context_length > from.count(original, 1, kContextMax, {});
        // Both, so that a file is wrong or right whatever its context.
        const auto short_factors = inner.positives("short_factor", dim / 2);
        const auto long_factors = inner.positives("long_factor", dim / 2);
        const double short_scale = inner.positive("short_mscale", {});
        const double long_scale = inner.positive("long_mscale", {});
        config.long_rope = ops::LongRope{.factors = is_long ? long_factors : short_factors,
                                         .scale = is_long ? long_scale : short_scale};
    });
}

}  // namespace afd::model
