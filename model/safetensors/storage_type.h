// SPDX-License-Identifier: Apache-2.0
#pragma once

// StorageType: the element types of the safetensors format.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace afd::model {

// clang-format off
enum class StorageType : uint8_t {
    kBool, kU8, kI8, kF8E5M2, kF8E4M3, kF8E8M0, kF8E4M3Fnuz, kF8E5M2Fnuz,
    kI16, kU16, kF16, kBf16, kI32, kU32, kF32, kI64, kU64, kF64, kC64,
    kF4, kF6E2M3, kF6E3M2,
};
// clang-format on

// As written in a header: "BF16", "F8_E4M3", ...
std::string_view storage_type_name(StorageType type);
std::optional<StorageType> parse_storage_type(std::string_view name);

// Bits of one element; not always whole bytes.
unsigned storage_type_bits(StorageType type);

// Bytes of a tensor, or nothing if they overflow 64 bits or are not whole.
std::optional<uint64_t> tensor_bytes(StorageType type, std::span<const uint64_t> shape);

// "[2048, 512]", as messages show shapes.
std::string shape_text(std::span<const uint64_t> shape);

}  // namespace afd::model
