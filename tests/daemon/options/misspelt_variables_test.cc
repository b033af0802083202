// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/misspelt_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MisspeltVariables, AreNamedWithWhatWasMeant) {
    EXPECT_THAT(misspelt_variables({{"AFD_FNN_WORKERS", "2"}, {"AFD_MODLE", "/m"}}),
                ElementsAre("AFD_FNN_WORKERS is no option of afdd and is ignored (did you mean "
                            "'AFD_FFN_WORKERS'?)",
                            "AFD_MODLE is no option of afdd and is ignored (did you mean "
                            "'AFD_MODEL'?)"));
}

TEST(MisspeltVariables, AreNoOptionsAndNoVariablesOfOthers) {
    EXPECT_THAT(misspelt_variables({{"AFD_FFN_WORKERS", "2"},
                                    {"AFD_CONFIG", "/c"},
                                    {"AFD_API_KEY", "k"},
                                    {"AFD_CRASH_POINTS", "/p"},
                                    {"AFD_SOCKET", "/s"},
                                    {"AFD_UCX_TLS", "tcp"},
                                    {"AFD_WORKER_DIRECTORY", "/w"},
                                    {"AFD_PORT_8000_TCP_ADDR", "10.0.0.1"},
                                    {"AFD_KUBERNETES_SOMETHING_ELSE", ""},
                                    {"FNN_WORKERS", "2"},
                                    {"AFD_", ""}}),
                IsEmpty());
}

}  // namespace
}  // namespace afd::daemon
