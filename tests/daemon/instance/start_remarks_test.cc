// SPDX-License-Identifier: Apache-2.0
//
// Goal: what works, but slower than one would think, is said before anybody waits for it. Method:
// configurations with cores and a quota that the test chooses. Oracle: sentences written by hand.
#include "daemon/instance/start_remarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/options/config_options.h"
#include "ops/format/numeric_class.h"
#include "tests/daemon/scoped_variable.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

const std::vector<uint32_t> kEightCores = {0, 1, 2, 3, 4, 5, 6, 7};

Config config_with(const std::string& name = "", const std::string& value = "") {
    Config config;
    for (const ConfigOption& option : config_options()) {
        const Result<> set =
            set_option(option, option.name == name ? value : option.default_text, config);
        EXPECT_TRUE(set.ok()) << set.error().message;
    }
    // So that the surroundings of the test have no say.
    if (name != "weight_cache") config.weight_cache = "off";
    return config;
}

std::vector<std::string> remarks(const Config& config, double quota = 0) {
    return start_remarks(config, kEightCores, quota);
}

TEST(StartRemarks, AreNoneOfADefault) {
    EXPECT_THAT(remarks(config_with()), IsEmpty());
}

TEST(StartRemarks, TellOfCoresWithSeveralThreads) {
    const auto crowded =
        ElementsAre(StartsWith("8 cores are allowed, and some get several data "
                               "threads: these take turns, "));
    EXPECT_THAT(remarks(config_with("attention_workers", "9")), crowded);
    // One of each side that take turns are meant to be there.
    EXPECT_THAT(start_remarks(config_with(), {0, 1}, 0), IsEmpty());
    EXPECT_THAT(start_remarks(config_with("ffn_workers", "2"), {0, 1}, 0),
                ElementsAre(StartsWith("2 cores are allowed, and some get several ")));
    // How many there will be is the leader's to say.
    Config joined = config_with("attention_workers", "9");
    joined.join = "leader:7411";
    EXPECT_THAT(remarks(joined), IsEmpty());
    // The start refuses it.
    EXPECT_THAT(remarks(config_with("pin", "0;1;2")), IsEmpty());
}

TEST(StartRemarks, TellOfATimeoutInTheWrongUnit) {
    EXPECT_THAT(remarks(config_with("hang_timeout_ms", "60")),
                ElementsAre(StartsWith("hang_timeout_ms = 60: a worker that computes for 60 "
                                       "milliseconds without a sign of progress is killed; ")));
    EXPECT_THAT(remarks(config_with("hang_timeout_ms", "999")).size(), 1u);
    for (const char* usual : {"0", "1000", "60000"}) {
        EXPECT_THAT(remarks(config_with("hang_timeout_ms", usual)), IsEmpty());
    }
    Config joined = config_with("hang_timeout_ms", "60");
    joined.join = "leader:7411";
    EXPECT_THAT(remarks(joined), IsEmpty());
}

TEST(StartRemarks, TellOfAQuota) {
    EXPECT_THAT(remarks(config_with(), 3.5),
                ElementsAre(StartsWith("the control group has time for 3.5 of 8 allowed cores: ")));
}

TEST(StartRemarks, TellOfAClassThatOtherInstructionsMustServe) {
    size_t num_told = 0;
    for (const ops::NumericClass one : ops::supported_numeric_classes()) {
        const std::string name(ops::name_of(one));
        const auto told = remarks(config_with("numeric_class", name));
        if (ops::is_native(one)) {
            EXPECT_THAT(told, IsEmpty());
            continue;
        }
        EXPECT_THAT(told,
                    ElementsAre(StartsWith("numeric_class = " + name +
                                           ": this processor lacks its instructions; ")));
        ++num_told;
    }
    // Every build has the class of AMX (docs/processors.md).
    EXPECT_EQ(num_told, ops::is_native(ops::NumericClass::kAmx) ? 0u : 1u);
}

TEST(StartRemarks, TellThatPackedWeightsHaveNoPlace) {
    const ScopedVariable home("HOME", nullptr);
    const ScopedVariable cache("XDG_CACHE_HOME", nullptr);
    EXPECT_THAT(remarks(config_with("weight_cache", "auto")),
                ElementsAre("packed weights are not kept: neither XDG_CACHE_HOME nor HOME is set; "
                            "name a directory with weight_cache"));
    EXPECT_THAT(remarks(config_with("weight_cache", "off")), IsEmpty());
}

}  // namespace
}  // namespace afd::daemon
