// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/byte_alphabet.h"

#include <array>
#include <unordered_map>

#include "model/unicode/utf8.h"

namespace afd::model {
namespace {

bool stands_for_itself(unsigned byte) {
    // GPT-2's alphabet: printable Latin-1 characters stand for themselves, without the space and
    // the soft hyphen.
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
    std::array<std::string, 256> stand_ins;
    std::unordered_map<std::string_view, uint8_t> bytes;

    Alphabet() {
        uint32_t next = 0x100;
        for (unsigned byte = 0; byte < 256; ++byte) {
            append_utf8(stands_for_itself(byte) ? byte : next++, stand_ins[byte]);
        }
        for (unsigned byte = 0; byte < 256; ++byte) {
            bytes.emplace(stand_ins[byte], static_cast<uint8_t>(byte));
        }
    }
};

const Alphabet& alphabet() {
    static const Alphabet kAlphabet;
    return kAlphabet;
}

}  // namespace

std::string byte_stand_in(uint8_t byte) {
    return alphabet().stand_ins[byte];
}

std::optional<std::string> bytes_of_stand_ins(std::string_view entry) {
    std::string bytes;
    while (!entry.empty()) {
        const size_t size = next_character(entry).size;
        const auto at = alphabet().bytes.find(entry.substr(0, size));
        if (at == alphabet().bytes.end()) return std::nullopt;
        bytes.push_back(static_cast<char>(at->second));
        entry.remove_prefix(size);
    }
    return bytes;
}

}  // namespace afd::model
