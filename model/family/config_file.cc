// SPDX-License-Identifier: Apache-2.0
#include "model/family/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/checkpoint/token_ids.h"
#include "model/family/decoder_keys.h"
#include "model/family/expert_formats.h"
#include "model/family/family_registry.h"
#include "model/family/text_config.h"
#include "model/json/json_document.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// `text(family)` of all, as a message lists them.
template <typename Text>
std::string listed(const std::vector<Family>& all, Text text) {
    std::string list;
    std::string last;
    for (const Family& family : all) {
        // Families of one model_type stand side by side.
        if (text(family) == last) continue;
        last = text(family);
        list += (list.empty() ? "" : ", ") + last;
    }
    return list;
}

std::string quoted(std::string_view text) {
    return '"' + std::string(text) + '"';
}

bool is_text(const Json& value, std::string_view text) {
    return value.is_string() && value.get_ref<const std::string&>() == text;
}

// Models that people have and that no family here computes: what they need, and what to do.
struct Unserved {
    std::string_view architecture;
    std::string_view needs;
};
constexpr std::array kUnserved = {
    Unserved{"Ernie4_5_MoeForCausalLM",
             "interleaved rotation of grouped heads, and a router whose "
             "softmax scores have a bias that only chooses"},
    Unserved{"BailingMoeForCausalLM", "q, k and v in one tensor, under names of its own"},
    Unserved{"BailingMoeV2ForCausalLM", "q, k and v in one tensor, under names of its own"},
};

// By the architecture, since a derived model may have a model_type of its own; without exactly one
// by the model_type. Null: a problem stays in `keys`.
std::optional<Family> find_family(KeyReader& keys) {
    const std::vector<Family> all = families();
    const Json* architectures = keys.find("architectures");
    if (architectures != nullptr && architectures->is_array() && architectures->size() == 1) {
        for (const Family& family : all) {
            if (is_text(architectures->front(), family.architecture)) return family;
        }
        for (const Unserved& other : kUnserved) {
            if (!is_text(architectures->front(), other.architecture)) continue;
            keys.refuse(Code::kUnimplemented,
                        "architectures",
                        fmt::format("a family of docs/models.md; this one needs {}, which is not "
                                    "served: choose a model from that page",
                                    other.needs));
            return {};
        }
        keys.refuse(Code::kUnimplemented, "architectures", listed(all, [](const Family& family) {
                        return "[" + quoted(family.architecture) + "]";
                    }));
        return {};
    }
    const Json* model_type = keys.find("model_type");
    for (const Family& family : all) {
        if (model_type != nullptr && is_text(*model_type, family.model_type)) return family;
    }
    keys.refuse(model_type == nullptr ? Code::kInvalidArgument : Code::kUnimplemented,
                "model_type",
                listed(all, [](const Family& family) { return quoted(family.model_type); }));
    return {};
}

// Whoever looks at all experts of a model takes time and memory for each.
void check_num_experts(KeyReader& keys, const ModelConfig& config) {
    const uint32_t layers_max = kAllExpertsMax / std::max(config.num_experts, 1u);
    if (config.num_layers <= layers_max) return;
    keys.refuse(Code::kInvalidArgument,
                "num_hidden_layers",
                fmt::format("at most {} layers of {} experts", layers_max, config.num_experts));
}

// The attention decides which formats its matrices may have.
void check_attention_format(KeyReader& keys, const ModelConfig& config) {
    const auto formats = config.attention->formats();
    if (std::ranges::find(formats, config.quantisation.attention) != formats.end()) return;
    std::string list;
    for (const ops::WeightFormat format : formats) {
        list += std::string(list.empty() ? "" : ", ") + std::string(ops::name_of(format));
    }
    keys.refuse(Code::kUnimplemented,
                "quantization_config",
                "for models of type " + config.model_type + " with \"attention\": " + list);
}

// `format_origin`: where the object has its quantization_config from; another place than `origin`
// only if it `is_part` of a larger model.
Result<ModelConfig> read_config(const Json& object,
                                const std::string& origin,
                                const std::string& format_origin,
                                bool is_part) {
    KeyReader keys(object, origin);
    ModelConfig config;
    const std::optional<Family> family = find_family(keys);
    if (!family) return keys.problem();
    // The family's own and not the file's: later defaults go by it.
    config.model_type = family->model_type;
    KeyReader format_keys(object, format_origin);
    read_quantisation(format_keys, config);
    keys.adopt(format_keys);
    family->read(keys, config);
    // Only then is there an attention to ask, and do layers and tensors have names.
    if (!keys.failed()) check_num_experts(keys, config);
    if (!keys.failed()) check_attention_format(keys, config);
    if (!keys.failed()) foretell_expert_formats(keys, is_part, config);
    if (keys.failed()) return keys.problem();

    AFD_ASSIGN(config.eos_token_ids,
               read_token_ids(object, "eos_token_id", config.vocab_size, origin));
    return config;
}

// Whether text_model_of() has from the object of the text model, and not from beside it, what
// read_quantisation() reads or refuses.
bool has_own_format(const Json& config) {
    const auto has = [](const Json& object, const char* key) {
        const auto at = object.find(key);
        return at != object.end() && !at->is_null();
    };
    for (const char* key : {"quantization_config", "compression_config", "quantize"}) {
        if (has(config.at(kTextConfig), key)) return true;
        if (has(config, key)) return false;
    }
    return false;
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& origin) {
    AFD_ASSIGN(const Json object, parse_json(text, origin));
    if (!object.is_object()) {
        return Error{Code::kDataLoss, origin + ": not a JSON object"};
    }
    if (!has_text_config(object)) return read_config(object, origin, origin, false);
    const std::string inside = origin + ": " + kTextConfig;
    return read_config(
        text_model_of(object), inside, has_own_format(object) ? inside : origin, true);
}

}  // namespace afd::model
