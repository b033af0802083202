// SPDX-License-Identifier: Apache-2.0
#pragma once

// The stand-ins that byte-level vocabularies write bytes with: a printable byte of Latin-1 stands
// for itself (21..7E, A1..AC, AE..FF), the other 68 are U+0100, U+0101, ... in byte order.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace afd::model {

// The character that stands for `byte`, in UTF-8.
std::string byte_stand_in(uint8_t byte);

// The bytes that a vocabulary entry stands for, or nothing if one of its characters is no stand-in.
std::optional<std::string> bytes_of_stand_ins(std::string_view entry);

}  // namespace afd::model
