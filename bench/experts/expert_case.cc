// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/expert_case.h"

namespace afd::bench {
namespace {

using ops::WeightFormat;

struct Sizes {
    size_t hidden;
    size_t intermediate;
};

// Experts of a 16 B and a 671 B model of the DeepSeek family.
constexpr Sizes kSizes[] = {{2048, 1408}, {7168, 2048}};
constexpr size_t kNumRows[] = {1, 2, 4, 8, 16, 64, 256, 512};

bool has_tiles(const ExpertCase& c) {
    return c.shape.numeric_class == ops::NumericClass::kAmx &&
           ops::is_native(ops::NumericClass::kAmx);
}

// Of the peak of bf16 tiles, for so many rows.
double tile_peak(size_t num_rows) {
    return num_rows < 256 ? 0.35 : num_rows < 512 ? 0.50 : 0.55;
}

// A row of a tile costs what sixteen do, so that up to sixteen are bound by memory.
ExpertTarget tile_target(const ExpertCase& c) {
    using Of = ExpertTarget::Of;
    const bool is_few = c.num_rows <= 16;
    switch (c.shape.format) {
        case WeightFormat::kBf16:
            return is_few ? ExpertTarget{Of::kRead, 0.95}
                          : ExpertTarget{Of::kPeak, tile_peak(c.num_rows)};
        case WeightFormat::kInt8:
            return is_few ? ExpertTarget{Of::kRead, 0.92}
                          : ExpertTarget{Of::kPeak, tile_peak(c.num_rows) - 0.05};
        default:
            // Of many rows: 0.7 of what bf16 has to reach.
            return c.num_rows <= 2 ? ExpertTarget{Of::kRead, 0.80}
                   : is_few        ? ExpertTarget{Of::kBound, 1 / 1.2}
                                   : ExpertTarget{Of::kPeak, 0.7 * tile_peak(c.num_rows)};
    }
}

}  // namespace

std::string ExpertCase::name() const {
    return std::string(ops::name_of(shape.format)) +
           (shape.int4_rows == ops::Int4Rows::kInt8 ? "-int8-rows" : "") + "/" +
           std::to_string(shape.hidden) + "x" + std::to_string(shape.intermediate) +
           "/rows:" + std::to_string(num_rows) + "/threads:" + std::to_string(num_threads) +
           (shape.numeric_class == ops::best_numeric_class()
                ? ""
                : "@" + std::string(ops::name_of(shape.numeric_class)));
}

double ExpertCase::num_weights() const {
    return 3.0 * static_cast<double>(shape.hidden * shape.intermediate);
}

double ExpertCase::operations() const {
    return 2.0 * static_cast<double>(num_rows) * num_weights();
}

const char* ExpertTarget::name() const {
    return of == Of::kRead ? "read" : of == Of::kPeak ? "peak" : "bound";
}

std::optional<ExpertTarget> target_of(const ExpertCase& c) {
    using Of = ExpertTarget::Of;
    const bool is_foreign =
        ops::has_fp16_scales(c.shape.format) || ops::has_zero_points(c.shape.format);
    if (is_foreign) return std::nullopt;
    // Rows of int8 meet int4 weights outside of tiles, whose peak they are held against.
    if (has_tiles(c) && c.shape.int4_rows == ops::Int4Rows::kInt8) return std::nullopt;
    if (has_tiles(c)) return tile_target(c);
    const bool is_few = c.num_rows <= 8;
    if (!is_few && c.shape.numeric_class != ops::best_numeric_class()) return std::nullopt;
    switch (c.shape.format) {
        case WeightFormat::kBf16:
            return is_few ? ExpertTarget{Of::kRead, 0.95} : ExpertTarget{Of::kPeak, 0.92};
        case WeightFormat::kInt8:
            return is_few ? ExpertTarget{Of::kRead, 0.92} : ExpertTarget{Of::kPeak, 0.85};
        default:
            return c.num_rows <= 2 ? ExpertTarget{Of::kRead, 0.80}
                                   : ExpertTarget{Of::kBound, 1 / 1.2};
    }
}

std::vector<ExpertCase> expert_cases(WeightFormat format,
                                     unsigned num_threads,
                                     ops::NumericClass numeric_class,
                                     ops::Int4Rows int4_rows) {
    std::vector<ExpertCase> cases;
    for (const Sizes& sizes : kSizes) {
        for (const size_t num_rows : kNumRows) {
            const ExpertCase next{
                {sizes.hidden, sizes.intermediate, format, numeric_class, int4_rows},
                num_rows,
                num_threads};
            if (num_rows == 16 && !has_tiles(next)) continue;  // Bound by neither.
            cases.push_back(next);
        }
    }
    return cases;
}

}  // namespace afd::bench
