// SPDX-License-Identifier: Apache-2.0

#include "bench/limits/limit_steps.h"

#include <sys/mman.h>

#include <algorithm>

#include "bench/limits/cold_memory.h"
#include "bench/limits/limit_loops.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

constexpr size_t kPieceBytes = size_t{32} << 20;
constexpr size_t kSteps = 200'000;

double run_on_all(ops::Parallel& parallel, void (*loop)(size_t), double operations) {
    if (loop == nullptr) return 0;
    parallel.run(parallel.num_threads(), [&](size_t, unsigned) { loop(kSteps); });
    return parallel.num_threads() * static_cast<double>(kSteps) * operations;
}

}  // namespace

ReadStep::ReadStep(size_t least) {
    const size_t bytes = cold_bytes(least);
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    AFD_ASSERT(memory != MAP_FAILED, "no memory of %zu bytes", bytes);
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    memory_ = {static_cast<std::byte*>(memory), bytes};
    for (size_t at = 0; at < bytes; at += 4096) memory_[at] = std::byte{1};
    read_once(memory_);
}

ReadStep::~ReadStep() {
    ::munmap(memory_.data(), memory_.size());
}

double ReadStep::run(ops::Parallel& parallel) {
    const size_t num_threads = parallel.num_threads();
    // Whole pages, and no more than there are for so many threads.
    const size_t piece = std::min(kPieceBytes, memory_.size() / num_threads / 4096 * 4096);
    if (next_ + num_threads * piece > memory_.size()) next_ = 0;
    parallel.run(num_threads, [&](size_t task, unsigned) {
        limit_loops().read(memory_.data() + next_ + task * piece, piece);
    });
    next_ += num_threads * piece;
    return static_cast<double>(num_threads * piece);
}

double bf16_step(ops::Parallel& parallel, const LimitLoops& loops) {
    return run_on_all(parallel, loops.bf16, loops.bf16_operations);
}

double int8_step(ops::Parallel& parallel) {
    return run_on_all(parallel, limit_loops().int8, limit_loops().int8_operations);
}

}  // namespace afd::bench
