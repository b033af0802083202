// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertRatios: what the rounds of one case come to, and how they are measured.

#include <cstddef>
#include <vector>

#include "bench/experts/expert_case.h"
#include "bench/experts/expert_machine.h"

namespace afd::bench {

// A value of each round.
struct ExpertRatios {
    std::vector<double> milliseconds;   // Of one call of ours.
    std::vector<double> read;           // Our bytes a second / those of a plain read.
    std::vector<double> peak;           // Our operations a second / those of multiply-adds alone.
    std::vector<double> read_peak;      // What `peak` is where weights come as in a plain read.
    std::vector<double> bound;          // max(bytes / read, operations / peak) / our time.
    std::vector<double> dnnl;           // oneDNN's time / ours; empty without a peer.
    std::vector<double> dnnl_products;  // The same of its products alone.
};

// In every round oneDNN, limits and our kernel run one after another; a first round is not counted.
// Experts take turns over more than 256 MiB of weights, so each finds its weights in memory. A
// peer whose results are not ours within rounding ends the program.
ExpertRatios measure_ratios(const ExpertCase& c, size_t num_rounds, ExpertMachine& machine);

}  // namespace afd::bench
