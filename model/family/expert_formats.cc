// SPDX-License-Identifier: Apache-2.0
#include "model/family/expert_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/attention/attention_config.h"
#include "model/checkpoint/expert_tensors.h"
#include "model/family/foreign_keys.h"
#include "model/family/module_filter.h"
#include "model/foreign/foreign_matrices.h"
#include "model/foreign/fused_experts.h"
#include "ops/format/weight_format.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;
using ops::WeightFormat;

enum class MlpKind { kRouted, kShared };  // Dense ones count as shared.

// Whether is_so(module), "model.layers.3.mlp.shared_experts.up_proj", for each matrix of the kind;
// asks up to the first that is not.
template <typename IsSo>
bool is_each_matrix(const ModelConfig& config, MlpKind kind, const IsSo& is_so) {
    const TensorNames& names = config.names;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        for (uint32_t expert = 0; expert < num_layer_experts(config, layer); ++expert) {
            const bool is_routed = is_routed_expert(config, layer, expert);
            if (is_routed != (kind == MlpKind::kRouted)) continue;
            const std::string prefix = expert_prefix(config, layer, expert);
            for (const std::string* part : {&names.gate, &names.up, &names.down}) {
                if (!is_so(prefix + *part)) return false;
            }
        }
    }
    return true;
}

// Calls look(module) for each.
template <typename Look>
void for_each_matrix(const ModelConfig& config, MlpKind kind, const Look& look) {
    is_each_matrix(config, kind, [&look](const std::string& module) {
        look(module);
        return true;
    });
}

// The same for those of the attention that may have a format of their own.
template <typename Look>
void for_each_attention_matrix(const ModelConfig& config, const Look& look) {
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        for (const AttentionMatrix& matrix : config.attention->matrices(config, layer)) {
            look(matrix.prefix);
        }
    }
}

bool can_have_int8_attention(const ModelConfig& config) {
    const auto formats = config.attention->formats();
    return std::ranges::find(formats, WeightFormat::kInt8) != formats.end();
}

// The modules that a quantization_config calls quantised, which its reader has accepted.
class QuantisedModules {
  public:
    QuantisedModules(const Json& object, bool is_part)
        : targets_(targets_of(object)), ignored_(ignored_of(object)), is_part_(is_part) {}

    bool has_all() const { return !targets_ && ignored_.is_empty(); }
    bool has(const std::string& module) const {
        return (!targets_ || is_named(*targets_, module)) && !is_named(ignored_, module);
    }

  private:
    bool is_named(const ModuleFilter& list, const std::string& module) const {
        const auto is_so = [&](const NamePrefix& prefix) {
            return list.names(prefix.stored_name(module));
        };
        return list.names(module) || (is_part_ && std::ranges::any_of(kWrappedNames, is_so));
    }
    static bool is_of(const Json& object, const char* method) {
        return object.at("quant_method") == method;
    }

    // Nothing: every linear.
    static std::optional<ModuleFilter> targets_of(const Json& object) {
        if (!is_of(object, "compressed-tensors")) return {};
        Json all = Json::array();
        for (const Json& group : object.at("config_groups")) {
            if (!group.is_object() || !group.contains("targets")) return {};
            for (const Json& target : group.at("targets")) {
                if (target == "Linear") return {};
                all.push_back(target);
            }
        }
        return ModuleFilter(all);
    }

    static ModuleFilter ignored_of(const Json& object) {
        if (is_of(object, "compressed-tensors")) {
            return ModuleFilter(object.value("ignore", Json::array()));
        }
        Json all = Json::array();
        const Json dynamic = object.value("dynamic", Json::object());
        if (dynamic.is_object()) {
            // Regular expressions behind "-:".
            for (const auto& [pattern, settings] : dynamic.items()) {
                if (pattern.starts_with("-:")) all.push_back("re:" + pattern.substr(2));
            }
        }
        if (is_of(object, "awq")) add_parts(object.value("modules_to_not_convert", Json()), all);
        return ModuleFilter(all);
    }

    // Names that have one of these anywhere, as AWQ's own programs read its list.
    static void add_parts(const Json& parts, Json& all) {
        if (!parts.is_array()) return;
        for (const Json& part : parts) {
            if (part.is_string()) all.push_back("re:.*\\Q" + part.get<std::string>() + "\\E");
        }
    }

    std::optional<ModuleFilter> targets_;
    ModuleFilter ignored_;
    bool is_part_;
};

// How the tensors have the int4 matrices of a kind.
struct Int4Census {
    bool is_uniform = true;            // Each matrix is in int4, with scales of one type.
    std::optional<StorageType> scale;  // That type; none where no matrix is there.
};

Int4Census take_census(const TensorStore& tensors, const ModelConfig& config, MlpKind kind) {
    Int4Census census;
    const ForeignMatrices foreign(tensors, config.form);
    for_each_matrix(config, kind, [&](const std::string& module) {
        const std::string weight = module + ".weight";
        if (!foreign.has(weight)) {
            // What is missing is named when it is read.
            census.is_uniform = census.is_uniform && !tensors.holds(weight);
            return;
        }
        const auto scale = foreign.scale_type_of(weight);
        if (!census.scale) census.scale = scale;
        census.is_uniform = census.is_uniform && scale && scale == census.scale;
    });
    return census;
}

void settle_int4(const TensorStore& tensors, ModelConfig& config) {
    QuantisationConfig& quantisation = config.quantisation;
    const Int4Census routed = take_census(tensors, config, MlpKind::kRouted);
    const bool has_fp16 = routed.scale == StorageType::kF16;
    quantisation.has_bf16_shared = false;
    if (!routed.is_uniform || (!has_fp16 && routed.scale != StorageType::kBf16)) {
        quantisation.experts = WeightFormat::kBf16;
        return;
    }
    quantisation.experts = int4_format_of(config.form, has_fp16);
    const Int4Census shared = take_census(tensors, config, MlpKind::kShared);
    quantisation.has_bf16_shared =
        !shared.is_uniform || (shared.scale && shared.scale != routed.scale);
}

void settle_int8(const TensorStore& tensors, ModelConfig& config) {
    struct Census {
        bool has_any = false;
        bool has_other = false;
    };
    const ForeignMatrices foreign(tensors, config.form);
    const auto look_into = [&](Census& census) {
        return [&](const std::string& module) {
            const bool is_int8 = foreign.has(module + ".weight");
            census.has_any = census.has_any || is_int8;
            // What is missing is named when it is read.
            census.has_other = census.has_other || (!is_int8 && tensors.holds(module + ".weight"));
        };
    };
    Census routed;
    Census shared;
    Census attention;
    for_each_matrix(config, MlpKind::kRouted, look_into(routed));
    for_each_matrix(config, MlpKind::kShared, look_into(shared));
    for_each_attention_matrix(config, look_into(attention));
    const auto is_int8 = [](const Census& census) { return census.has_any && !census.has_other; };
    QuantisationConfig& quantisation = config.quantisation;
    quantisation.experts = is_int8(routed) ? WeightFormat::kInt8 : WeightFormat::kBf16;
    quantisation.has_bf16_shared = is_int8(routed) && shared.has_other;
    quantisation.attention = is_int8(attention) && can_have_int8_attention(config)
                                 ? WeightFormat::kInt8
                                 : WeightFormat::kBf16;
}

void settle_fp8(const TensorStore& tensors, ModelConfig& config) {
    bool has_other = false;
    for_each_matrix(config, MlpKind::kShared, [&](const std::string& module) {
        const TensorInfo* stored = tensors.find(module + ".weight");
        has_other = has_other || (stored != nullptr && stored->dtype != StorageType::kF8E4M3);
    });
    config.quantisation.has_bf16_shared = has_other;
}

void settle_fused(const TensorStore& tensors, ModelConfig& config) {
    bool is_mxfp4 = true;
    for_each_matrix(config, MlpKind::kRouted, [&](const std::string& module) {
        is_mxfp4 = is_mxfp4 && is_fused_mxfp4(tensors, module + ".weight");
    });
    config.quantisation.experts = is_mxfp4 ? WeightFormat::kMxfp4 : WeightFormat::kBf16;
}

}  // namespace

void foretell_expert_formats(const KeyReader& keys, bool is_part, ModelConfig& config) {
    QuantisationConfig& quantisation = config.quantisation;
    const bool is_int8 = config.form.kind == ForeignKind::kInt8Rows;
    if (!is_int8 && (!config.form.is_int4() || !ops::is_int4(quantisation.experts))) return;
    const QuantisedModules modules(*keys.find("quantization_config"), is_part);
    const auto are_quantised = [&](MlpKind kind) {
        return modules.has_all() || is_each_matrix(config, kind, [&](const std::string& module) {
                   return modules.has(module);
               });
    };
    if (are_quantised(MlpKind::kRouted)) {
        quantisation.has_bf16_shared = !are_quantised(MlpKind::kShared);
    } else {
        quantisation.experts = WeightFormat::kBf16;
    }
    if (!is_int8 || !can_have_int8_attention(config)) return;
    bool is_all = true;
    for_each_attention_matrix(
        config, [&](const std::string& module) { is_all = is_all && modules.has(module); });
    if (is_all) quantisation.attention = WeightFormat::kInt8;
}

void settle_expert_formats(const TensorStore& tensors, ModelConfig& config) {
    if (config.form.kind == ForeignKind::kFusedExperts) {
        settle_fused(tensors, config);
    } else if (config.form.kind == ForeignKind::kInt8Rows) {
        settle_int8(tensors, config);
    } else if (ops::is_int4(int4_format_of(config.form, false))) {
        settle_int4(tensors, config);
    } else if (config.quantisation.experts == WeightFormat::kFp8Block128) {
        settle_fp8(tensors, config);
    }
}

}  // namespace afd::model
