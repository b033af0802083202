// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/end_signals.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using Meaning = EndSignals::Meaning;

// A service manager and a terminal may both send one at the same moment.
TEST(EndSignals, TwoAtTheSameMomentAreOne) {
    EndSignals signals;
    EXPECT_EQ(signals.on_signal(5000, false), Meaning::kDrain);
    EXPECT_EQ(signals.on_signal(5000, true), Meaning::kSame);
    EXPECT_EQ(signals.on_signal(5099, true), Meaning::kSame);
}

// Counted from the first: repeating it quickly does not put the stop off for ever.
TEST(EndSignals, ALaterOneStopsAtOnce) {
    EndSignals signals;
    EXPECT_EQ(signals.on_signal(0, false), Meaning::kDrain);
    EXPECT_EQ(signals.on_signal(60, true), Meaning::kSame);
    EXPECT_EQ(signals.on_signal(100, true), Meaning::kStopNow);
    EXPECT_EQ(signals.on_signal(101, true), Meaning::kStopNow);
}

// A client has asked to stop, and it takes too long.
TEST(EndSignals, TheFirstOneStopsAnInstanceThatDrainsAlready) {
    EndSignals signals;
    EXPECT_EQ(signals.on_signal(7, true), Meaning::kStopNow);
}

}  // namespace
}  // namespace afd::daemon
