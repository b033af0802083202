// SPDX-License-Identifier: Apache-2.0
#pragma once

// Framing of the two socket protocols (client.proto, control.proto): each message is preceded by
// its length in bytes, 4 bytes little-endian.
//
// FrameReader takes bytes as they arrive and yields whole messages; the length is believed only
// up to kFrameBytesMax, so a peer's bad bytes cost a bounded buffer and its own connection.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd {

// A prompt of a million tokens as packed varints is about 3 MB; status of 1,024 workers 0.2 MB.
inline constexpr size_t kFrameBytesMax = size_t{16} << 20;

// Appends one frame with the serialised `message` (a protobuf message) to `out`.
template <typename Message>
void append_frame(const Message& message, std::string& out) {
    const size_t start = out.size();
    out.append(4, '\0');
    message.AppendToString(&out);
    const auto size = static_cast<uint32_t>(out.size() - start - 4);
    for (size_t i = 0; i < 4; ++i) out[start + i] = static_cast<char>(size >> (8 * i));
}

class FrameReader {
  public:
    // Takes the next bytes of the stream.
    void append(std::span<const char> bytes) { buffer_.append(bytes.data(), bytes.size()); }

    // The next whole message's bytes (valid until the next call), or nothing yet.
    // Errors: kDataLoss if the announced length exceeds kFrameBytesMax.
    Result<std::optional<std::string_view>> next() {
        buffer_.erase(0, consumed_);
        consumed_ = 0;
        if (buffer_.size() < 4) return std::optional<std::string_view>();
        size_t size = 0;
        for (size_t i = 0; i < 4; ++i) {
            size |= static_cast<size_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
        }
        if (size > kFrameBytesMax) {
            return Error{Code::kDataLoss,
                         "frame of " + std::to_string(size) + " bytes announced; at most " +
                             std::to_string(kFrameBytesMax) + " are accepted"};
        }
        if (buffer_.size() < 4 + size) return std::optional<std::string_view>();
        consumed_ = 4 + size;
        return std::optional(std::string_view(buffer_).substr(4, size));
    }

  private:
    std::string buffer_;
    size_t consumed_ = 0;
};

}  // namespace afd
