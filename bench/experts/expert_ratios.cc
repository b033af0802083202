// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/expert_ratios.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/experts/dnnl_experts.h"
#include "bench/experts/our_experts.h"
#include "bench/limits/cold_memory.h"
#include "bench/limits/timing.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using ops::WeightFormat;

constexpr size_t kColdLeast = size_t{256} << 20;
constexpr double kSampleSeconds = 6e-3;

// So many that their weights, packed, come from memory.
size_t num_cold_experts(const ExpertCase& c) {
    const WeightFormat format = c.shape.format;
    const double bytes_guess = c.num_weights() * (format == WeightFormat::kBf16 ? 2
                                                  : ops::has_nibbles(format)    ? 0.53
                                                                                : 1);
    return static_cast<size_t>(static_cast<double>(cold_bytes(kColdLeast)) / bytes_guess) + 1;
}

// Without VNNI oneDNN adds pairs of int8 products in 16 bits, where they saturate.
bool sums_int8() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vnni") || __builtin_cpu_supports("avxvnni");
#else
    return true;
#endif
}

// The peer must have done the work: its roundings differ, its results may not.
void check_peer(DnnlExperts& dnnl, OurExperts& ours, ops::Parallel& parallel) {
    constexpr double kLargestError = 0.02;  // Of the norm.
    dnnl.run(0);
    ours.run_next(parallel);
    const ops::Rows<const ops::Bf16> theirs = dnnl.y();
    double error = 0;
    double norm = 0;
    for (size_t row = 0; row < theirs.num_rows; ++row) {
        for (size_t column = 0; column < theirs.num_cols; ++column) {
            const double value = ops::to_float(ours.y().row(row)[column]);
            const double difference = ops::to_float(theirs.row(row)[column]) - value;
            error += difference * difference;
            norm += value * value;
        }
    }
    AFD_ASSERT(norm > 0 && std::sqrt(error / norm) < kLargestError,
               "oneDNN's result is off by %g of %g",
               std::sqrt(error),
               std::sqrt(norm));
}

// oneDNN over the experts in turn.
class Peer {
  public:
    // Without a peer for this format or processor, sample() does nothing.
    Peer(const ExpertCase& c, size_t num_experts, OurExperts& ours, ops::Parallel& parallel)
        : num_experts_(num_experts) {
        const WeightFormat format = c.shape.format;
        if (format != WeightFormat::kBf16 && format != WeightFormat::kInt8) return;
        if (format == WeightFormat::kInt8 && !sums_int8()) return;
        dnnl_ =
            DnnlExperts::make(c.shape, plain_expert(c.shape), num_experts, ours.x(), c.num_threads);
        if (dnnl_) check_peer(*dnnl_, ours, parallel);
    }

    bool exists() const { return dnnl_ != nullptr; }

    struct Seconds {
        double all = 0;
        double products = 0;
    };
    // Of one of `calls` calls, while our threads sleep.
    Seconds sample(size_t calls) {
        if (!dnnl_) return {};
        Seconds seconds;
        ExpertMachine::wait_for_sleepers();
        dnnl_->run(next_expert());
        seconds.all = seconds_of_call(calls, [&] { dnnl_->run(next_expert()); });
        seconds.products = seconds_of_call(calls, [&] { dnnl_->run_products(next_expert()); });
        ExpertMachine::wait_for_sleepers();
        return seconds;
    }

  private:
    size_t next_expert() { return next_++ % num_experts_; }

    const size_t num_experts_;
    std::unique_ptr<DnnlExperts> dnnl_;
    size_t next_ = 0;
};

}  // namespace

ExpertRatios measure_ratios(const ExpertCase& c, size_t num_rounds, ExpertMachine& machine) {
    ops::Parallel& parallel = machine.parallel(c.num_threads);
    const size_t num_experts = num_cold_experts(c);
    const ExpertWeights weights(c.shape, num_experts);
    OurExperts ours(weights, c.num_rows, 1);
    Peer peer(c, num_experts, ours, parallel);
    const auto bytes = static_cast<double>(weights.expert_bytes());
    size_t calls = 1;
    ExpertRatios ratios;
    for (size_t round = 0; round <= num_rounds; ++round) {
        const Peer::Seconds peer_seconds = peer.sample(calls);
        parallel.run(c.num_threads, [](size_t, unsigned) {});  // Wakes our threads.
        const double read = machine.read_rate(parallel);
        const double peak = machine.peak_rate(c.shape.peak_format(), parallel);
        const double bound = std::max(bytes / read, c.operations() / peak);
        const double seconds = seconds_of_call(calls, [&] { ours.run_next(parallel); });
        if (round == 0) {
            calls = static_cast<size_t>(kSampleSeconds / seconds) + 1;
            continue;
        }
        ratios.milliseconds.push_back(seconds * 1e3);
        ratios.read.push_back(bytes / seconds / read);
        ratios.peak.push_back(c.operations() / seconds / peak);
        ratios.read_peak.push_back(c.operations() / bytes * read / peak);
        ratios.bound.push_back(bound / seconds);
        if (!peer.exists()) continue;
        ratios.dnnl.push_back(peer_seconds.all / seconds);
        ratios.dnnl_products.push_back(peer_seconds.products / seconds);
    }
    return ratios;
}

}  // namespace afd::bench
