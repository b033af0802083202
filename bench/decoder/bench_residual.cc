// SPDX-License-Identifier: Apache-2.0

// bench_residual MODEL [STEPS]: what a residual stream in fp32 costs: steps of the whole decoder in
// one process, on all cores, with one and the other in turns.
//
// A row each for 1, 16 and 32 rows of one sequence at once: ms of the fastest step of either, and
// their ratio; and the median of the ratios of steps that follow each other. A busy neighbour only
// ever adds time, to both alike. Both decoders hold all weights: take a model of a few hundred MB
// (tests/golden/make_checkpoint.py --variant medium).

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/limits/timing.h"
#include "model/decoder/local_decoder.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "threads/thread_pool.h"

namespace afd::bench {
namespace {

constexpr uint32_t kContext = 1024;
constexpr uint32_t kRowsMax = 32;

// One decoder and its step times.
class Subject {
  public:
    static Result<Subject> load(const std::string& directory,
                                model::ResidualType residual,
                                ops::Parallel& parallel) {
        AFD_ASSIGN(model::ModelFiles files, model::ModelFiles::open(directory));
        files.set_residual(residual);
        const uint32_t tokens = std::min(kContext, files.config().context_length);
        AFD_ASSIGN(model::LocalDecoder decoder,
                   model::LocalDecoder::load(
                       files, ops::best_numeric_class(), kRowsMax, tokens, parallel));
        return Subject(std::move(decoder), files.config().vocab_size, tokens);
    }

    // Seconds of one step of so many rows. The sequence begins anew when it is full.
    Result<double> step(uint32_t num_rows) {
        if (num_done_ + num_rows > tokens_max_) {
            decoder_.reset();
            num_done_ = 0;
        }
        std::vector<int32_t> tokens(num_rows);
        for (int32_t& token : tokens) {
            token = static_cast<int32_t>(next_ = (next_ * 1103515245u + 12345u) % vocab_size_);
        }
        Result<> result;
        const double seconds = seconds_of([&] {
            result = decoder_.append(tokens, ops::make_rows(logits_.data(), num_rows, vocab_size_));
        });
        AFD_TRY(result);
        num_done_ += num_rows;
        return seconds;
    }

  private:
    Subject(model::LocalDecoder decoder, size_t vocab_size, uint32_t tokens_max)
        : decoder_(std::move(decoder)),
          vocab_size_(vocab_size),
          tokens_max_(tokens_max),
          logits_(kRowsMax * vocab_size) {}

    model::LocalDecoder decoder_;
    size_t vocab_size_;
    uint32_t tokens_max_;
    uint32_t num_done_ = 0;
    size_t next_ = 1;
    std::vector<float> logits_;
};

Result<> compare(Subject& narrow, Subject& wide, uint32_t num_rows, int num_steps) {
    std::vector<double> of_bf16;
    std::vector<double> of_fp32;
    std::vector<double> ratios;
    for (int i = 0; i < num_steps; ++i) {
        AFD_ASSIGN(const double first, narrow.step(num_rows));
        AFD_ASSIGN(const double second, wide.step(num_rows));
        of_bf16.push_back(first);
        of_fp32.push_back(second);
        ratios.push_back(second / first);
    }
    const double fastest_bf16 = std::ranges::min(of_bf16);
    const double fastest_fp32 = std::ranges::min(of_fp32);
    fmt::print(
        "{:2} rows: bf16 {:.3f} ms, fp32 {:.3f} ms; ratio of the fastest {:.3f}, median {:.3f}\n",
        num_rows,
        fastest_bf16 * 1e3,
        fastest_fp32 * 1e3,
        fastest_fp32 / fastest_bf16,
        median(ratios));
    return {};
}

Result<> run(const std::string& directory, int num_steps) {
    threads::ThreadPool pool(std::max(1u, std::thread::hardware_concurrency()));
    AFD_ASSIGN(Subject narrow, Subject::load(directory, model::ResidualType::kBf16, pool));
    AFD_ASSIGN(Subject wide, Subject::load(directory, model::ResidualType::kFp32, pool));
    for (const uint32_t num_rows : {1u, 16u, kRowsMax}) {
        AFD_TRY(compare(narrow, wide, num_rows, num_steps));
    }
    return {};
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    const int num_steps = argc == 3 ? std::atoi(argv[2]) : 200;
    if (argc < 2 || argc > 3 || num_steps < 1) {
        std::fprintf(stderr, "usage: bench_residual MODEL [STEPS]\n");
        return 2;
    }
    const auto result = afd::bench::run(argv[1], num_steps);
    if (result.ok()) return 0;
    std::fprintf(stderr, "bench_residual: %s\n", result.error().message.c_str());
    return 1;
}
