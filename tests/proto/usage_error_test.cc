// SPDX-License-Identifier: Apache-2.0
#include "proto/usage_error.h"

#include <gtest/gtest.h>

namespace afd {
namespace {

// Goal: a user is told what to do. Oracle: the texts of CLI11 2.1 as programs here met them.
TEST(UsageError, SaysInOurWordsWhatIsWrong) {
    const std::pair<const char*, const char*> cases[] = {
        {"--ffn-workers: At Most 1 required but received 2",
         "--ffn-workers is given 2 times; give it once"},
        {"devices: At least 2 required but received 1", "devices needs 2 values; 1 is given"},
        {"names: At Most 2 required but received 3", "names takes at most 2 values; 3 are given"},
        {"--row-checksums: 1 required  missing", "--row-checksums needs a value"},
        {"--stop-token-ids: 1 required ID,... missing", "--stop-token-ids needs a value: ID,..."},
        {"devices is required", "devices is missing"},
        {"--out is required", "--out must be given"},
        {"--temperature: Value 3 not in range 0.000000 to 2.000000",
         "--temperature = 3: must be from 0 to 2"},
        {"--keep: Value 0 not in range 0.001000 to 86400.000000",
         "--keep = 0: must be from 0.001 to 86400"},
        {"--repeat: Value 0 not in range 1 to 100", "--repeat = 0: must be from 1 to 100"},
        {"--kv: bf17 not in {bf16,int8}", "--kv = bf17: must be one of bf16,int8"},
        {"Could not convert: --max-tokens = many",
         "--max-tokens = many: is no value of this option"},
        {"The following arguments were not expected: int8 --expert", "unknown option --expert"},
        {"The following arguments were not expected: --bar --foo", "unknown option --foo"},
        {"The following argument was not expected: --delay=3", "unknown option --delay"},
        {"The following argument was not expected: more", "unexpected argument 'more'"},
        {"--all excludes --worker", "--all and --worker exclude each other; give one of them"},
        {"--kv requires --reference", "--kv is for use with --reference; give both"},
    };
    for (const auto& [text, words] : cases) EXPECT_EQ(usage_error(text), words);
}

TEST(UsageError, LeavesOtherTextsAsTheyAre) {
    for (const char* text : {"--seed: '-1' must be a whole number", "3 is not ID:BIAS", ""}) {
        EXPECT_EQ(usage_error(text), text);
    }
}

}  // namespace
}  // namespace afd
