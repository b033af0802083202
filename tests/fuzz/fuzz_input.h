// SPDX-License-Identifier: Apache-2.0
#pragma once

// FuzzInput: takes the bytes of an input apart. A fuzzer that needs several things of it takes
// numbers from the front; what it does not take is the rest. An input that is too short gives
// zeros.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace afd::fuzz {

class FuzzInput {
  public:
    FuzzInput(const uint8_t* data, size_t size) : rest_(data, size) {}

    template <typename Number>
    Number take() {
        Number number{};
        fill(std::as_writable_bytes(std::span(&number, 1)));
        return number;
    }
    // As many bytes as there are.
    void fill(std::span<std::byte> out) {
        const size_t count = std::min(out.size(), rest_.size());
        if (count > 0) std::memcpy(out.data(), rest_.data(), count);
        rest_ = rest_.subspan(count);
    }
    bool is_empty() const { return rest_.empty(); }
    std::string_view text() const {
        return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
    }

  private:
    std::span<const uint8_t> rest_;
};

// Bytes of two files in one input: a line of four dashes is between them. Without one, all is the
// first.
inline std::pair<std::string_view, std::string_view> two_texts(std::string_view text) {
    constexpr std::string_view kBetween = "\n----\n";
    const size_t at = text.find(kBetween);
    if (at == std::string_view::npos) return {text, {}};
    return {text.substr(0, at), text.substr(at + kBetween.size())};
}

}  // namespace afd::fuzz
