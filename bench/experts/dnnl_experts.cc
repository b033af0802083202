// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/dnnl_experts.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "bench/experts/dnnl_product.h"
#include "ops/cpu/kernels.h"
#include "ops/linear/quantise.h"
#include "ops/tensor/parallel.h"

// Of the OpenMP library that oneDNN runs on; declared here, so that no compiler needs OpenMP.
extern "C" {
void omp_set_num_threads(int num_threads);
int omp_get_thread_num();
void GOMP_parallel(void (*body)(void*), void* argument, unsigned num_threads, unsigned flags);
}

namespace afd::bench {
namespace {

using Finish = DnnlProduct::Finish;
using ops::Bf16;
using ops::Rows;

// Calls body(row) for every row, on the library's threads.
void for_each_row(unsigned num_threads, size_t num_rows, ops::FunctionRef<void(size_t)> body) {
    struct Share {
        unsigned num_threads;
        size_t num_rows;
        ops::FunctionRef<void(size_t)> body;
    } share{num_threads, num_rows, body};
    const auto run_share = [](void* argument) {
        const auto& s = *static_cast<const Share*>(argument);
        const auto thread = static_cast<size_t>(omp_get_thread_num());
        const size_t last = (thread + 1) * s.num_rows / s.num_threads;
        for (size_t row = thread * s.num_rows / s.num_threads; row < last; ++row) s.body(row);
    };
    if (num_threads == 1 || num_rows == 1) {
        for (size_t row = 0; row < num_rows; ++row) body(row);
        return;
    }
    GOMP_parallel(run_share, &share, num_threads, 0);
}

template <typename T>
Rows<T> rows_of(const dnnl::memory& memory) {
    const auto& dims = memory.get_desc().data.dims;
    return ops::make_rows(static_cast<T*>(memory.get_data_handle()),
                          static_cast<size_t>(dims[0]),
                          static_cast<size_t>(dims[1]));
}

// The rows of gate above those of up.
template <typename T>
std::vector<T> twice(const std::vector<T>& matrix) {
    std::vector<T> both(matrix);
    both.insert(both.end(), matrix.begin(), matrix.end());
    return both;
}

// Median of a few runs over experts that take turns.
double seconds_of_run(DnnlExperts& experts, size_t num_experts) {
    using Clock = std::chrono::steady_clock;
    constexpr size_t kRuns = 9;
    constexpr size_t kFewestRuns = 3;
    constexpr double kSeconds = 0.2;
    std::vector<double> seconds;
    double sum = 0;
    for (size_t i = 0; i < kRuns && (i < kFewestRuns || sum < kSeconds); ++i) {
        const Clock::time_point start = Clock::now();
        experts.run(i % num_experts);
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        sum += seconds.back();
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
}

}  // namespace

struct DnnlExperts::State {
    State(const ExpertShape& shape,
          const PlainExpert& expert,
          size_t num_experts,
          Rows<const Bf16> rows,
          unsigned threads,
          bool gate_with_up)
        : num_threads(threads),
          is_int8(shape.format == ops::WeightFormat::kInt8),
          intermediate(shape.intermediate),
          x(rows),
          scale(expert.scale),
          row_scale(rows.num_rows),
          y(rows.num_rows * shape.hidden) {
        const auto make = [&](size_t depth,
                              size_t outputs,
                              Finish finish,
                              const void* weight,
                              const DnnlProduct::Given& given = {}) {
            return std::make_unique<DnnlProduct>(
                engine,
                DnnlProduct::Shape{rows.num_rows, depth, outputs, is_int8, finish},
                weight,
                num_experts,
                given);
        };
        const void* matrix =
            is_int8 ? static_cast<const void*>(expert.int8.data()) : expert.bf16.data();
        if (gate_with_up) {
            const auto bf16 = twice(expert.bf16);
            const auto int8 = twice(expert.int8);
            gate = make(shape.hidden,
                        2 * intermediate,
                        Finish::kSums,
                        is_int8 ? static_cast<const void*>(int8.data()) : bf16.data());
        } else {
            up = make(shape.hidden, intermediate, is_int8 ? Finish::kSums : Finish::kRound, matrix);
            gate = make(shape.hidden,
                        intermediate,
                        is_int8 ? Finish::kSums : Finish::kSwiglu,
                        matrix,
                        {&up->x(), is_int8 ? nullptr : &up->y()});
            has_swiglu = !is_int8;
        }
        down = make(intermediate,
                    shape.hidden,
                    is_int8 ? Finish::kSums : Finish::kRound,
                    matrix,
                    {has_swiglu ? &gate->y() : nullptr});
        if (!is_int8) std::copy_n(x.data, x.num_rows * x.num_cols, rows_of<Bf16>(gate->x()).data);
    }

    void run_products(size_t expert) {
        if (up) up->run(expert, stream);
        gate->run(expert, stream);
        down->run(expert, stream);
        stream.wait();
    }

    void run(size_t expert) {
        if (is_int8) quantise();
        if (up) up->run(expert, stream);
        gate->run(expert, stream);
        stream.wait();
        if (is_int8) activate_int8();
        if (!is_int8 && !has_swiglu) activate_bf16();
        down->run(expert, stream);
        stream.wait();
        if (is_int8) finish_int8();
    }

    void quantise() {
        const Rows<int8_t> q = rows_of<int8_t>(gate->x());
        for_each_row(num_threads, x.num_rows, [&](size_t row) {
            row_scale[row] =
                ops::quantise_row(ops::DType::kBf16, x.row(row), nullptr, x.num_cols, q.row(row));
        });
    }

    // Where up's sums of a row stand.
    template <typename T>
    const T* up_sums(size_t row) const {
        return up ? rows_of<const T>(up->y()).row(row)
                  : rows_of<const T>(gate->y()).row(row) + intermediate;
    }

    void swiglu(const float* gate_sums, const float* up_sums, Bf16* h) const {
        constexpr size_t kLanes = 16;
        for (size_t c = 0; c < intermediate; c += kLanes) {
            kernels.swiglu_row(
                gate_sums + c, up_sums + c, std::min(kLanes, intermediate - c), h + c);
        }
    }

    void activate_bf16() {
        const Rows<Bf16> h = rows_of<Bf16>(down->x());
        for_each_row(num_threads, x.num_rows, [&](size_t row) {
            swiglu(rows_of<const float>(gate->y()).row(row), up_sums<float>(row), h.row(row));
        });
    }

    void activate_int8() {
        const Rows<int8_t> q = rows_of<int8_t>(down->x());
        for_each_row(num_threads, x.num_rows, [&](size_t row) {
            thread_local std::vector<float> scaled;
            thread_local std::vector<Bf16> h;
            scaled.resize(2 * intermediate);
            h.resize(intermediate);
            const auto scale_row = [&](const int32_t* sums, float* to) {
                kernels.scale_row(sums, row_scale[row], scale.data(), intermediate, to);
            };
            scale_row(rows_of<const int32_t>(gate->y()).row(row), scaled.data());
            scale_row(up_sums<int32_t>(row), scaled.data() + intermediate);
            swiglu(scaled.data(), scaled.data() + intermediate, h.data());
            row_scale[row] =
                ops::quantise_row(ops::DType::kBf16, h.data(), nullptr, intermediate, q.row(row));
        });
    }

    void finish_int8() {
        const Rows<const int32_t> sums = rows_of<const int32_t>(down->y());
        for_each_row(num_threads, x.num_rows, [&](size_t row) {
            thread_local std::vector<float> scaled;
            scaled.resize(sums.num_cols);
            kernels.scale_row(
                sums.row(row), row_scale[row], scale.data(), sums.num_cols, scaled.data());
            kernels.round_row(scaled.data(), sums.num_cols, &y[row * sums.num_cols]);
        });
    }

    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    const ops::cpu::Kernels& kernels = ops::cpu::best_kernels();
    unsigned num_threads;
    bool is_int8;
    bool has_swiglu = false;  // The gate product does it.
    size_t intermediate;
    Rows<const Bf16> x;
    std::vector<float> scale;  // Of the columns of every matrix.
    std::vector<float> row_scale;
    std::vector<Bf16> y;  // With int8.
    std::unique_ptr<DnnlProduct> up;
    std::unique_ptr<DnnlProduct> gate;  // With up in it, where there is no up.
    std::unique_ptr<DnnlProduct> down;
};

std::unique_ptr<DnnlExperts> DnnlExperts::make(const ExpertShape& shape,
                                               const PlainExpert& expert,
                                               size_t num_experts,
                                               Rows<const Bf16> x,
                                               unsigned num_threads) {
    // The library decides by the number of threads how it lays weights out.
    omp_set_num_threads(static_cast<int>(num_threads));
    std::unique_ptr<DnnlExperts> fastest;
    double least = std::numeric_limits<double>::infinity();
    for (const bool gate_with_up : {false, true}) {
        try {
            auto experts = std::unique_ptr<DnnlExperts>(new DnnlExperts(
                std::make_unique<State>(shape, expert, num_experts, x, num_threads, gate_with_up)));
            const double seconds = seconds_of_run(*experts, num_experts);
            if (seconds < least) fastest = std::move(experts);
            least = std::min(least, seconds);
        } catch (const dnnl::error&) {
        }
    }
    return fastest;
}

DnnlExperts::DnnlExperts(std::unique_ptr<State> state) : state_(std::move(state)) {}

DnnlExperts::~DnnlExperts() = default;

void DnnlExperts::run(size_t expert) {
    omp_set_num_threads(static_cast<int>(state_->num_threads));
    state_->run(expert);
}

void DnnlExperts::run_products(size_t expert) {
    omp_set_num_threads(static_cast<int>(state_->num_threads));
    state_->run_products(expert);
}

Rows<const Bf16> DnnlExperts::y() const {
    if (!state_->is_int8) return rows_of<const Bf16>(state_->down->y());
    return ops::make_rows(state_->y.data(), state_->x.num_rows, state_->x.num_cols);
}

}  // namespace afd::bench
