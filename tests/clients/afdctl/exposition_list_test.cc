// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/exposition_list.h"

#include <gtest/gtest.h>

namespace afd::client {
namespace {

TEST(ExpositionList, HasAnItemForEachFamilyWithItsOtherName) {
    const std::string exposition =
        "# HELP afd_a_total Things that were done, which takes more words than fit into one line "
        "of a document\n"
        "# TYPE afd_a_total counter\n"
        "afd_a_total{x=\"1\"} 3\n"
        "# HELP afd_b Things\n"
        "# TYPE afd_b gauge\n"
        "# HELP vllm:b Things\n"
        "# TYPE vllm:b gauge\n"
        "vllm:b 1\n";
    EXPECT_EQ(exposition_list(exposition),
              "* `afd_a_total` (counter): Things that were done, which takes more words than fit "
              "into one line of a\n  document.\n"
              "* `afd_b` (gauge): Things. `vllm:b`.\n");
}

TEST(ExpositionList, OfNothingIsEmpty) {
    EXPECT_EQ(exposition_list(""), "");
    EXPECT_EQ(exposition_list("nonsense\n# TYPE x\n#\n"), "");
}

}  // namespace
}  // namespace afd::client
