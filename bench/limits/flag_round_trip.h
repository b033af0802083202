// SPDX-License-Identifier: Apache-2.0
#pragma once

// How far apart two threads are: what they wait for each other, whatever they compute.

#include "ops/tensor/parallel.h"

namespace afd::bench {

// Nanoseconds in which a flag goes from one thread to another and back. Virtual cores move: about
// 50 ns are two threads of one core, which halves what they compute together, 130 ns two cores with
// a common cache, 500 ns two without. REQUIRES: two threads or more, each on a core of its own.
double flag_round_trip_ns(ops::Parallel& parallel);

}  // namespace afd::bench
