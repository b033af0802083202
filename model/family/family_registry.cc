// SPDX-License-Identifier: Apache-2.0
#include "model/family/family_registry.h"

#include <mutex>
#include <span>

#include "model/family/deepseek.h"
#include "model/family/glm4_moe.h"
#include "model/family/gpt_oss.h"
#include "model/family/grouped_deepseek.h"
#include "model/family/mixtral.h"
#include "model/family/olmoe.h"
#include "model/family/phimoe.h"
#include "model/family/qwen_moe.h"
#include "proto/check.h"

namespace afd::model {
namespace {

struct Registry {
    Registry() {
        for (const std::span<const Family> list : {deepseek_families(),
                                                   glm4_moe_families(),
                                                   gpt_oss_families(),
                                                   grouped_deepseek_families(),
                                                   mixtral_families(),
                                                   olmoe_families(),
                                                   phimoe_families(),
                                                   qwen_moe_families()}) {
            families.insert(families.end(), list.begin(), list.end());
        }
    }

    std::mutex mutex;
    std::vector<Family> families;
};

// Made at the first use: families register from initialisers of other files, too.
Registry& registry() {
    static Registry instance;
    return instance;
}

}  // namespace

std::vector<Family> families() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    // A copy: a family may be registered while somebody looks.
    return all.families;
}

void register_family(const Family& family) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    for (const Family& other : all.families) {
        AFD_ASSERT(
            other.model_type != family.model_type && other.architecture != family.architecture,
            "the family %s is registered already",
            std::string(other.model_type).c_str());
    }
    all.families.push_back(family);
}

}  // namespace afd::model
