// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small tools of benchmarks that time bodies of their own: seconds, rates, medians.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace afd::bench {

// The larger of the middle two of an even number. REQUIRES: not empty.
inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

template <typename Body>
double seconds_of(const Body& body) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    body();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of one of `calls` calls.
template <typename Body>
double seconds_of_call(size_t calls, const Body& body) {
    return seconds_of([&] {
               for (size_t i = 0; i < calls; ++i) body();
           }) /
           static_cast<double>(calls);
}

// Amount a second of a step that returns its amount.
template <typename Step>
double rate_of(const Step& step) {
    double amount = 0;
    const double seconds = seconds_of([&] { amount = step(); });
    return amount / seconds;
}

}  // namespace afd::bench
