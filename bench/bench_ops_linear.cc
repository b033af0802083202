// SPDX-License-Identifier: Apache-2.0

// bench_ops_linear: the linear kernel of every numeric class against this core's limits.
//
//   bench_ops_linear [--benchmark_filter=...]
//
// linear/<class>/<N>x<K>/rows:<M>/cold   weights rotate over 256 MiB: what an expert sees
//                                 /hot    one matrix, in cache when it fits
// Counters: GFLOP/s; of_peak = that / the measured multiply-add rate; weight GB/s; of_read = that /
// the measured read bandwidth. A kernel is good where the larger of the two ratios is near 1.
// One thread. Compare only figures of one run: neighbours on a shared host move the limits.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "ops/linear.h"

namespace afd::bench {
namespace {

constexpr size_t kColdBytes = size_t{256} << 20;

struct Limits {
    double gflops = 0;
    double gbytes_per_s = 0;
};

struct Shape {
    size_t num_outputs;
    size_t depth;
};

std::vector<ops::Bf16> random_values(size_t count) {
    std::mt19937 engine(1);
    std::vector<ops::Bf16> values(count);
    for (ops::Bf16& value : values) {
        value.bits = static_cast<uint16_t>(0x3c00u + (engine() & 0x83ffu));
    }
    return values;
}

void run_linear(benchmark::State& state,
                const Limits& limits,
                ops::NumericClass numeric_class,
                Shape shape,
                size_t num_rows,
                bool is_cold) {
    const auto [num_outputs, depth] = shape;
    const std::vector<ops::Bf16> weight = random_values(num_outputs * depth);
    const std::vector<ops::Bf16> x = random_values(num_rows * depth);
    std::vector<ops::Bf16> y(num_rows * num_outputs);
    const size_t weight_bytes = weight.size() * sizeof(ops::Bf16);
    const size_t num_copies = is_cold ? kColdBytes / weight_bytes + 1 : 1;
    std::vector<ops::PackedLinear> packed;
    for (size_t i = 0; i < num_copies; ++i) {
        packed.push_back(ops::PackedLinear::pack(ops::make_rows(weight.data(), num_outputs, depth),
                                                 numeric_class));
    }
    ops::SerialParallel serial;
    size_t copy = 0;
    for (auto _ : state) {
        ops::linear(ops::make_rows(x.data(), num_rows, depth),
                    packed[copy],
                    ops::make_rows(y.data(), num_rows, num_outputs),
                    serial);
        copy = (copy + 1) % num_copies;
        benchmark::ClobberMemory();
    }
    using benchmark::Counter;
    const double gflop = 2e-9 * static_cast<double>(num_rows * num_outputs * depth);
    const double gbytes = 1e-9 * static_cast<double>(weight_bytes);
    state.counters["GFLOP/s"] = Counter(gflop, Counter::kIsIterationInvariantRate);
    state.counters["GB/s"] = Counter(gbytes, Counter::kIsIterationInvariantRate);
    state.counters["of_peak"] = Counter(gflop / limits.gflops, Counter::kIsIterationInvariantRate);
    state.counters["of_read"] =
        Counter(gbytes / limits.gbytes_per_s, Counter::kIsIterationInvariantRate);
}

void register_all(const Limits& limits) {
    // The demo model's projections, a small expert, an expert of a 16 B model.
    const Shape shapes[] = {{192, 192}, {512, 1024}, {1408, 2048}};
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        for (const Shape shape : shapes) {
            for (const size_t num_rows : {1, 4, 12, 16, 64, 256}) {
                for (const bool is_cold : {true, false}) {
                    const std::string name =
                        "linear/" + std::string(ops::name_of(numeric_class)) + "/" +
                        std::to_string(shape.num_outputs) + "x" + std::to_string(shape.depth) +
                        "/rows:" + std::to_string(num_rows) + (is_cold ? "/cold" : "/hot");
                    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
                        run_linear(state, limits, numeric_class, shape, num_rows, is_cold);
                    });
                }
            }
        }
    }
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    afd::ops::SerialParallel one;
    const afd::bench::Limits limits{afd::bench::bf16_gflops(one),
                                    afd::bench::read_gbytes_per_s(one)};
    std::printf("this core: %.0f GFLOP/s multiply-add, %.1f GB/s read\n",
                limits.gflops,
                limits.gbytes_per_s);
    afd::bench::register_all(limits);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
