// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/weight_cache_choice.h"

#include "model/unicode/utf8.h"
#include "model/weight_cache/weight_cache.h"

namespace afd::daemon {

WeightCacheChoice choose_weight_cache(const Config& config) {
    WeightCacheChoice choice;
    if (config.weight_cache == "off") return choice;
    if (config.weight_cache != "auto") {
        choice.directory = config.weight_cache;
        return choice;
    }
    choice.is_default = true;
    choice.directory = model::default_weight_cache_directory();
    // Workers are told it as text.
    if (!model::is_valid_utf8(choice.directory)) {
        choice.directory.clear();
        choice.why_nowhere = "XDG_CACHE_HOME or HOME is no UTF-8";
    } else if (choice.directory.empty()) {
        choice.why_nowhere = "neither XDG_CACHE_HOME nor HOME is set";
    }
    return choice;
}

bool shares_experts(const Config& config) {
    return model::WeightCache::is_usable(choose_weight_cache(config).directory);
}

}  // namespace afd::daemon
