// SPDX-License-Identifier: Apache-2.0
#include "model/family/module_filter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace afd::model {
namespace {

using nlohmann::json;

const std::string kModule = "model.layers.3.mlp.experts.7.gate_proj";

TEST(ModuleFilter, IsEmptyIfItNamesNothing) {
    for (const json& list : {json(), json::array(), json::array({7, nullptr})}) {
        EXPECT_TRUE(ModuleFilter(list).is_empty()) << list;
        EXPECT_FALSE(ModuleFilter(list).names(kModule)) << list;
    }
    for (const json& list : {json::array({kModule}), json::array({"re:.*gate"})}) {
        EXPECT_FALSE(ModuleFilter(list).is_empty()) << list;
        EXPECT_TRUE(ModuleFilter(list).names(kModule)) << list;
    }
}

// Goal: a long list keeps nobody busy on a model of many experts. Oracle: names by their whole are
// known as before.
TEST(ModuleFilter, TriesItsExpressionsOnSoManyNamesOnly) {
    const ModuleFilter filter(json::array({"re:other", "re:.*gate_proj", "lm_head"}), 4);
    EXPECT_TRUE(filter.names(kModule));
    EXPECT_TRUE(filter.names(kModule));
    EXPECT_FALSE(filter.names(kModule)) << "four were tried";
    EXPECT_TRUE(filter.names("lm_head"));
}

}  // namespace
}  // namespace afd::model
