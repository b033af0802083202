// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/end_signals.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using Meaning = EndSignals::Meaning;

// A service manager and a terminal may both send one at the same moment.
TEST(EndSignals, TwoAtTheSameMomentAreOne) {
    EndSignals signals;
    EXPECT_EQ(signals.on_signal(5000), Meaning::kDrain);
    EXPECT_EQ(signals.on_signal(5000), Meaning::kSame);
    EXPECT_EQ(signals.on_signal(5099), Meaning::kSame);
}

// Counted from the first: repeating it quickly does not put the stop off for ever.
TEST(EndSignals, ALaterOneStopsAtOnce) {
    EndSignals signals;
    EXPECT_EQ(signals.on_signal(0), Meaning::kDrain);
    EXPECT_EQ(signals.on_signal(60), Meaning::kSame);
    EXPECT_EQ(signals.on_signal(100), Meaning::kStopNow);
    EXPECT_EQ(signals.on_signal(101), Meaning::kStopNow);
}

}  // namespace
}  // namespace afd::daemon
