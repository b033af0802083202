// SPDX-License-Identifier: Apache-2.0
#pragma once

// HopTimes: what a round loses between two workers, by direction, worked out from their trace
// events (trace_ring.h): all clocks of a machine are one.

#include "daemon/metrics/metric_histogram.h"

namespace afd::daemon {

struct HopTimes {
    HistogramCounts a2f;  // Nanoseconds from a dispatch's end to the start of its gather.
    HistogramCounts f2a;  // From the last return's end to the look that found all results.
};

}  // namespace afd::daemon
