// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/expert_weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/limits/cold_memory.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

template <typename T>
std::vector<T> random_bits(size_t count, uint32_t seed, uint32_t mask, uint32_t base) {
    std::mt19937 engine(seed);
    std::vector<T> values(count);
    for (T& value : values) {
        const uint32_t bits = base + (static_cast<uint32_t>(engine()) & mask);
        if constexpr (std::is_same_v<T, ops::Bf16>) {
            value.bits = static_cast<uint16_t>(bits);
        } else {
            value = static_cast<T>(bits);
        }
    }
    return values;
}

ops::PackedExpert bf16_expert(const ExpertShape& s, ops::NumericClass numeric_class) {
    const PlainExpert plain = plain_expert(s);
    const auto wide = ops::make_rows(plain.bf16.data(), s.intermediate, s.hidden);
    return ops::pack_expert(
        wide, wide, ops::make_rows(plain.bf16.data(), s.hidden, s.intermediate), numeric_class);
}

ops::PackedExpert int8_expert(const ExpertShape& s, ops::NumericClass numeric_class) {
    const PlainExpert plain = plain_expert(s);
    const auto matrix = [&](size_t outputs, size_t depth) {
        return ops::Int8Weight{ops::make_rows(plain.int8.data(), outputs, depth),
                               plain.scale.data()};
    };
    const ops::Int8Weight wide = matrix(s.intermediate, s.hidden);
    return ops::pack_expert(wide, wide, matrix(s.hidden, s.intermediate), numeric_class);
}

ops::PackedExpert nibble_expert(const ExpertShape& s, ops::NumericClass numeric_class) {
    const size_t group = ops::int4_group_size(s.format);
    // Nibbles of 0 to 3 and of -7 to -4: every sign, never -8.
    auto w = random_bits<uint8_t>(s.hidden * s.intermediate / 2, 1, 0xbbu, 0);
    for (uint8_t& byte : w) byte |= static_cast<uint8_t>((byte & 0x88u) >> 3);
    // Scales of 0.002 to 0.004, short in bf16, as afd-quantize writes them, and any in fp16, as
    // other programs do; of mxfp4 these two powers of two.
    const bool is_mxfp4 = s.format == ops::WeightFormat::kMxfp4;
    const bool is_fp16 = ops::has_fp16_scales(s.format);
    const auto scale = random_bits<uint16_t>(s.hidden * s.intermediate / group,
                                             2,
                                             is_mxfp4  ? 0x80u
                                             : is_fp16 ? 0x3ffu
                                                       : 0x78u,
                                             is_fp16 ? 0x1800u : 0x3b00u);
    std::vector<int8_t> zero(ops::has_zero_points(s.format) ? scale.size() : 0);
    for (size_t i = 0; i < zero.size(); ++i) zero[i] = static_cast<int8_t>(int(i % 16) - 8);
    const auto matrix = [&](size_t outputs, size_t depth) {
        return ops::Int4Weight{ops::make_rows(w.data(), outputs, depth / 2),
                               ops::make_rows(scale.data(), outputs, depth / group),
                               depth,
                               s.format,
                               ops::make_rows(zero.data(), outputs, depth / group)};
    };
    const ops::Int4Weight wide = matrix(s.intermediate, s.hidden);
    return ops::pack_expert(wide, wide, matrix(s.hidden, s.intermediate), numeric_class);
}

ops::PackedExpert fp8_expert(const ExpertShape& s, ops::NumericClass numeric_class) {
    // Magnitudes of 1 to 1.9 of both signs, and 2 to 3.8: none that is no number.
    const auto bytes = random_bits<uint8_t>(s.hidden * s.intermediate, 1, 0x8fu, 0x38u);
    std::vector<ops::E4m3> w(bytes.size());
    std::ranges::transform(bytes, w.begin(), [](uint8_t byte) { return ops::E4m3{byte}; });
    const std::vector<float> scale(ops::fp8_blocks(s.hidden) * ops::fp8_blocks(s.intermediate),
                                   0.005f);
    const auto matrix = [&](size_t outputs, size_t depth) {
        return ops::Fp8Weight{
            ops::make_rows(w.data(), outputs, depth),
            ops::make_rows(scale.data(), ops::fp8_blocks(outputs), ops::fp8_blocks(depth))};
    };
    const ops::Fp8Weight wide = matrix(s.intermediate, s.hidden);
    return ops::pack_expert(wide, wide, matrix(s.hidden, s.intermediate), numeric_class);
}

ops::PackedExpert random_expert(const ExpertShape& shape) {
    const ops::NumericClass numeric_class = shape.numeric_class;
    switch (shape.format) {
        case ops::WeightFormat::kBf16:
            return bf16_expert(shape, numeric_class);
        case ops::WeightFormat::kInt8:
            return int8_expert(shape, numeric_class);
        case ops::WeightFormat::kFp8Block128:
            return fp8_expert(shape, numeric_class);
        default:
            return nibble_expert(shape, numeric_class);
    }
}

// Pages of 2 MiB where the kernel gives them, as it does for a file of packed weights that is
// mapped the way the workers do.
std::span<std::byte> allocate(size_t bytes) {
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    AFD_ASSERT(memory != MAP_FAILED, "no memory of %zu bytes", bytes);
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    return {static_cast<std::byte*>(memory), bytes};
}

}  // namespace

PlainExpert plain_expert(const ExpertShape& shape) {
    const size_t count = shape.hidden * shape.intermediate;
    PlainExpert expert;
    if (shape.format == ops::WeightFormat::kInt8) {
        expert.int8 = random_bits<int8_t>(count, 1, 0xffu, 0);
        expert.scale.assign(std::max(shape.hidden, shape.intermediate), 0x1p-13f);
    } else {
        // Magnitudes of 0.008 to 0.016, of both signs.
        expert.bf16 = random_bits<ops::Bf16>(count, 1, 0x807fu, 0x3c00u);
    }
    return expert;
}

ExpertWeights::ExpertWeights(const ExpertShape& shape, size_t num_experts)
    : table_(num_experts, shape.hidden) {
    table_.set_int4_rows(shape.int4_rows);
    const ops::PackedExpert one = random_expert(shape);
    const auto gate_up = one.gate_up.bytes();
    const auto down = one.down.bytes();
    expert_bytes_ = gate_up.size() + down.size();
    memory_ = allocate(num_experts * expert_bytes_);
    for (size_t key = 0; key < num_experts; ++key) {
        const auto at = memory_.subspan(key * expert_bytes_, expert_bytes_);
        std::memcpy(at.data(), gate_up.data(), gate_up.size());
        std::memcpy(at.data() + gate_up.size(), down.data(), down.size());
        ops::PackedExpert view;
        view.gate_up = ops::PackedLinear::view(one.gate_up.shape(), at.first(gate_up.size()));
        view.down = ops::PackedLinear::view(one.down.shape(), at.subspan(gate_up.size()));
        table_.set(key, std::move(view));
    }
    read_once(memory_);
}

ExpertWeights::~ExpertWeights() {
    ::munmap(memory_.data(), memory_.size());
}

}  // namespace afd::bench
