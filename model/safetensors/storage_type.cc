// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/storage_type.h"

#include <array>
#include <cstddef>

namespace afd::model {
namespace {

struct TypeRow {
    std::string_view name;
    unsigned bits;
};

// In the order of the enumeration.
constexpr std::array<TypeRow, 22> kTypes = {{
    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
    {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};
static_assert(static_cast<size_t>(StorageType::kF6E3M2) + 1 == kTypes.size());

}  // namespace

std::string_view storage_type_name(StorageType type) {
    return kTypes[static_cast<size_t>(type)].name;
}

unsigned storage_type_bits(StorageType type) {
    return kTypes[static_cast<size_t>(type)].bits;
}

std::optional<StorageType> parse_storage_type(std::string_view name) {
    for (size_t i = 0; i < kTypes.size(); ++i) {
        if (kTypes[i].name == name) return static_cast<StorageType>(i);
    }
    return std::nullopt;
}

std::optional<uint64_t> tensor_bytes(StorageType type, std::span<const uint64_t> shape) {
    uint64_t bits = storage_type_bits(type);
    bool is_empty = false;
    for (const uint64_t extent : shape) {
        is_empty = is_empty || extent == 0;
        // In bits, since some types have fewer than eight; extents are the file's and may overflow.
        // An extent of 0 must not hide an overflow of the others.
        if (__builtin_mul_overflow(bits, extent == 0 ? 1 : extent, &bits)) return std::nullopt;
    }
    if (is_empty) return 0;
    if (bits % 8 != 0) return std::nullopt;
    return bits / 8;
}

std::string shape_text(std::span<const uint64_t> shape) {
    std::string text = "[";
    for (const uint64_t extent : shape) {
        if (text.size() > 1) text += ", ";
        text += std::to_string(extent);
    }
    return text + "]";
}

}  // namespace afd::model
