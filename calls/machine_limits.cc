// SPDX-License-Identifier: Apache-2.0
#include "calls/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/tensor/workspace.h"

namespace afd::calls {
namespace {

using ops::Bf16;

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double copy_rate(ops::Parallel& parallel) {
    constexpr size_t kBytes = size_t{128} << 20;
    constexpr size_t kPart = size_t{1} << 20;
    const ops::Workspace from(kBytes);
    const ops::Workspace to(kBytes);
    std::memset(from.bytes().data(), 1, kBytes);
    const auto copy = [&] {
        parallel.run(kBytes / kPart, [&](size_t part, unsigned) {
            std::memcpy(
                to.bytes().data() + part * kPart, from.bytes().data() + part * kPart, kPart);
        });
    };
    copy();  // Pages.
    double best = seconds_of(copy);
    for (int i = 0; i < 3; ++i) best = std::min(best, seconds_of(copy));
    return 2.0 * kBytes / best;
}

double product_rate(ops::NumericClass numeric_class, ops::Parallel& parallel) {
    constexpr size_t kRows = 32;
    constexpr size_t kDepth = 512;
    constexpr size_t kColumns = 128;
    constexpr int kRounds = 100;
    const std::vector<Bf16> x(kRows * kDepth, ops::from_float(0.5f));
    const std::vector<Bf16> weight(kColumns * kDepth, ops::from_float(0.5f));
    const ops::PackedLinear packed =
        ops::PackedLinear::pack(ops::make_rows(weight.data(), kColumns, kDepth), numeric_class);
    std::vector<std::vector<Bf16>> outputs(parallel.num_threads(),
                                           std::vector<Bf16>(kRows * kColumns));
    const auto multiply = [&] {
        parallel.run(parallel.num_threads(), [&](size_t task, unsigned) {
            ops::SerialParallel serial;
            for (int round = 0; round < kRounds; ++round) {
                ops::linear(ops::make_rows(x.data(), kRows, kDepth),
                            packed,
                            ops::make_rows(outputs[task].data(), kRows, kColumns),
                            serial);
            }
        });
    };
    double best = seconds_of(multiply);
    for (int i = 0; i < 4; ++i) best = std::min(best, seconds_of(multiply));
    return 2.0 * kRows * kDepth * kColumns * kRounds * parallel.num_threads() / best;
}

}  // namespace

MachineLimits machine_limits(ops::NumericClass numeric_class, ops::Parallel& parallel) {
    return {copy_rate(parallel), product_rate(numeric_class, parallel)};
}

}  // namespace afd::calls
