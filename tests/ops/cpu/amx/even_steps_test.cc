// SPDX-License-Identifier: Apache-2.0

// Goal: what goes on beside products of tiles is done when they are, no more of it and none twice.

#include "ops/cpu/amx/even_steps.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

namespace afd::ops {
namespace {

TEST(EvenSteps, AreAllDoneAfterTheLastAndDifferByOne) {
    for (const size_t count : {0u, 1u, 7u, 8u, 9u, 32u, 100u}) {
        for (const size_t num_steps : {1u, 3u, 8u, 64u}) {
            cpu::EvenSteps steps(count, num_steps);
            size_t done = 0;
            for (size_t i = 1; i <= num_steps; ++i) {
                const size_t before = done;
                steps.step([&] { ++done; });
                EXPECT_LE(done - before, (count + num_steps - 1) / num_steps);
                EXPECT_EQ(done, i * count / num_steps) << count << " over " << num_steps;
            }
        }
    }
}

// Lines as offsets.
std::vector<size_t> lines_of(size_t bytes, size_t num_parts, size_t num_steps) {
    static const std::array<std::byte, 16384> kMemory{};
    const std::byte* from = kMemory.data();
    std::vector<size_t> lines;
    for (size_t part = 0; part < num_parts; ++part) {
        cpu::LineFetch fetch(from, bytes, part, num_parts, num_steps);
        for (size_t i = 0; i < num_steps; ++i) {
            fetch.step(
                [&](const std::byte* line) { lines.push_back(static_cast<size_t>(line - from)); });
        }
    }
    return lines;
}

TEST(LineFetch, TakesEveryLineOnceInOrder) {
    for (const size_t bytes : {64u, 100u, 2048u, 4608u, 16384u}) {
        for (const size_t num_parts : {1u, 2u, 3u, 10u}) {
            for (const size_t num_steps : {1u, 8u, 10u}) {
                std::vector<size_t> all;
                for (size_t line = 0; line < bytes; line += 64) all.push_back(line);
                EXPECT_EQ(lines_of(bytes, num_parts, num_steps), all)
                    << bytes << " bytes, " << num_parts << " parts, " << num_steps << " steps";
            }
        }
    }
}

TEST(LineFetch, OfNothingTakesNothing) {
    cpu::LineFetch fetch;
    fetch.step([](const std::byte*) { FAIL(); });
}

}  // namespace
}  // namespace afd::ops
