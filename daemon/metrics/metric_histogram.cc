// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/metric_histogram.h"

namespace afd::daemon {

void HistogramCounts::record(uint64_t value) {
    ++buckets[histogram_bucket(value)];
    ++count;
    sum += value;
    largest = std::max(largest, value);
}

void HistogramCounts::add(const HistogramCounts& other) {
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
        buckets[bucket] += other.buckets[bucket];
    }
    count += other.count;
    sum += other.sum;
    largest = std::max(largest, other.largest);
}

uint64_t HistogramCounts::count_below(uint64_t edge) const {
    uint64_t below = 0;
    for (size_t bucket = 0; bucket < histogram_bucket(edge); ++bucket) below += buckets[bucket];
    return below;
}

double HistogramCounts::mean() const {
    return count == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(count);
}

double HistogramCounts::value_at(double fraction) const {
    if (count == 0) return 0.0;
    const double wanted = fraction * static_cast<double>(count);
    double below = 0.0;
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
        const auto here = static_cast<double>(buckets[bucket]);
        if (here == 0.0 || below + here < wanted) {
            below += here;
            continue;
        }
        // A bucket of one value is that value.
        const uint64_t edge = histogram_edge(bucket);
        const auto spread = static_cast<double>(histogram_edge(bucket + 1) - edge - 1);
        const double value = static_cast<double>(edge) + spread * ((wanted - below) / here);
        return std::min(value, static_cast<double>(largest));
    }
    return static_cast<double>(largest);
}

HistogramCounts MetricHistogram::read() const {
    HistogramCounts counts;
    counts.sum = load(0);
    counts.largest = load(1);
    for (size_t bucket = 0; bucket < counts.buckets.size(); ++bucket) {
        counts.buckets[bucket] = load(schedule::kHistogramHeadWords + bucket);
        // Summed here and not kept as a word of its own: a reader beside the writer would find the
        // two at different times.
        counts.count += counts.buckets[bucket];
    }
    return counts;
}

}  // namespace afd::daemon
