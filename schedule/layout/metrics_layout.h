// SPDX-License-Identifier: Apache-2.0
#pragma once

// The layout of a metrics segment. docs/wire.md says the same in words; daemon/metrics/metrics.h
// and daemon/metrics/trace_ring.h read and write it.
//
//   0        counters      uint64 [kMetricsCounters]
//   896      trace switch  uint64, a line of its own: 0 off, written by afdd
//   1024     histograms    [kMetricsHistograms] of kHistogramBytes
//   11264    trace head    2 x uint64, a line of its own: events begun, events ended
//   12288    trace events  [kTraceEvents] of kTraceEventBytes
//   143360   lanes         session: a histogram for each rank
//                          rank: uint64 for each expert of a layer
//
// The worker's data thread writes all but the switch, and the counter of weights that are not read
// yet, which is the reading thread's. All in bytes.

#include <cstdint>

namespace afd::schedule {

inline constexpr uint64_t kMetricsCounters = 112;
inline constexpr uint64_t kTraceSwitchOffset = kMetricsCounters * 8;

inline constexpr uint64_t kMetricsHistogramsOffset = 1024;
inline constexpr uint64_t kMetricsHistograms = 8;
// Sum, largest, two reserved words, and the buckets.
inline constexpr uint64_t kHistogramHeadWords = 4;
inline constexpr uint64_t kHistogramBuckets = 156;
inline constexpr uint64_t kHistogramBytes = (kHistogramHeadWords + kHistogramBuckets) * 8;

inline constexpr uint64_t kTraceHeadOffset = 11264;
inline constexpr uint64_t kTraceEventsOffset = 12288;
inline constexpr uint64_t kTraceEvents = 4096;
inline constexpr uint64_t kTraceEventBytes = 32;

inline constexpr uint64_t kMetricsLanesOffset = 143360;

static_assert(kTraceSwitchOffset == 896 && kTraceSwitchOffset + 128 == kMetricsHistogramsOffset);
static_assert(kHistogramBytes == 1280);
static_assert(kMetricsHistogramsOffset + kMetricsHistograms * kHistogramBytes == kTraceHeadOffset);
static_assert(kTraceHeadOffset % 128 == 0 && kTraceHeadOffset + 128 <= kTraceEventsOffset);
static_assert(kTraceEventsOffset + kTraceEvents * kTraceEventBytes == kMetricsLanesOffset);

}  // namespace afd::schedule
