// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes on beside products of tiles, a little at every step of them. Compiled into
// ops/cpu/amx/kernels_amx.cc and tests only.

#include <cstddef>

namespace afd::ops::cpu {
namespace {

constexpr size_t kCacheLine = 64;

// `count` things over `num_steps` steps, as evenly as that goes.
class EvenSteps {
  public:
    EvenSteps() = default;
    EvenSteps(size_t count, size_t num_steps) : count_(count), num_steps_(num_steps) {}

    // Calls body() for those of the next step. All are done after num_steps.
    template <typename Body>
    [[gnu::always_inline]] void step(const Body& body) {
        due_ += count_;
        for (; due_ >= num_steps_; due_ -= num_steps_) body();
    }

  private:
    size_t count_ = 0;
    size_t num_steps_ = 1;
    size_t due_ = 0;  // Times num_steps_.
};

// Lines that are asked for from memory, to the second-level cache.
class LineFetch {
  public:
    LineFetch() = default;
    // Part `index` of num_parts parts of `bytes` from `from` on, in num_steps steps.
    LineFetch(
        const std::byte* from, size_t bytes, size_t index, size_t num_parts, size_t num_steps) {
        const size_t num_lines = (bytes + kCacheLine - 1) / kCacheLine;
        const size_t first = index * num_lines / num_parts;
        at_ = from + first * kCacheLine;
        lines_ = EvenSteps((index + 1) * num_lines / num_parts - first, num_steps);
    }

    [[gnu::always_inline]] void step() {
        step([](const std::byte* line) { __builtin_prefetch(line, 0, 2); });
    }
    // Calls fetch(line) instead.
    template <typename Fetch>
    [[gnu::always_inline]] void step(const Fetch& fetch) {
        lines_.step([&] {
            fetch(at_);
            at_ += kCacheLine;
        });
    }

  private:
    const std::byte* at_ = nullptr;
    EvenSteps lines_;
};

}  // namespace
}  // namespace afd::ops::cpu
