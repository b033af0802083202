// SPDX-License-Identifier: Apache-2.0
#pragma once

// The time that a piece of work takes of the processor, for tests that bound it: what else runs on
// the machine hardly counts.

#include <time.h>

namespace afd::model {

// In seconds, of this thread.
template <typename Work>
double processor_seconds(Work&& work) {
    const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    work();
    return now() - begin;
}

}  // namespace afd::model
