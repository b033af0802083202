// SPDX-License-Identifier: Apache-2.0
#pragma once

// Framing of the socket protocols (client, control, cluster, handover): each message is preceded by
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

// A prompt of a million tokens as packed varints is about 3 MB; the status of 1,024 attention and
// 256 FFN workers, with links and waits, 11 MB. Who makes longer messages asks fits_frame() first.
inline constexpr size_t kFrameBytesMax = size_t{16} << 20;

template <typename Message>
bool fits_frame(const Message& message) {
    return message.ByteSizeLong() <= kFrameBytesMax;
}

// Appends one frame to `out`: that of a message that is serialised already, and of a protobuf
// message.
inline void append_frame_of(std::string_view body, std::string& out) {
    const auto size = static_cast<uint32_t>(body.size());
    for (size_t i = 0; i < 4; ++i) out += static_cast<char>(size >> (8 * i));
    out += body;
}
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
    // Takes the next bytes of the stream. Many small frames cost one move of the rest, not one
    // each.
    void append(std::span<const char> bytes) {
        buffer_.erase(0, consumed_);
        consumed_ = 0;
        buffer_.append(bytes.data(), bytes.size());
    }

    // The next whole message's bytes (valid until the next call of any function), or nothing yet.
    // Errors: kDataLoss if the announced length exceeds kFrameBytesMax.
    Result<std::optional<std::string_view>> next() {
        if (consumed_ == buffer_.size()) give_back();
        const std::string_view rest = std::string_view(buffer_).substr(consumed_);
        if (rest.size() < 4) return std::optional<std::string_view>();
        size_t size = 0;
        for (size_t i = 0; i < 4; ++i) {
            size |= static_cast<size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
        }
        if (size > kFrameBytesMax) {
            return Error{Code::kDataLoss,
                         "frame of " + std::to_string(size) + " bytes announced; at most " +
                             std::to_string(kFrameBytesMax) + " are accepted"};
        }
        if (rest.size() < 4 + size) return std::optional<std::string_view>();
        consumed_ += 4 + size;
        return std::optional(rest.substr(4, size));
    }

    // Parses the next whole message; false: none is complete yet. `what` it is, for the error.
    // Errors: kDataLoss: as above, or no such message.
    template <typename Message>
    Result<bool> next(Message& message, std::string_view what) {
        AFD_ASSIGN(const std::optional<std::string_view> bytes, next());
        if (!bytes) return false;
        if (message.ParseFromArray(bytes->data(), static_cast<int>(bytes->size()))) return true;
        return Error{Code::kDataLoss,
                     std::string(what) + " of " + std::to_string(bytes->size()) +
                         " bytes is not a " + message.GetTypeName()};
    }

    // Bytes that came and were not given out.
    size_t held_bytes() const { return buffer_.size() - consumed_; }
    std::string_view rest() const { return std::string_view(buffer_).substr(consumed_); }

    // Bytes of the buffer, for what comes and what was not asked for yet.
    size_t capacity() const { return buffer_.capacity(); }

  private:
    // A long frame's memory must not stay for as long as its connection.
    static constexpr size_t kKeptBytesMax = size_t{256} << 10;

    void give_back() {
        consumed_ = 0;
        buffer_.clear();
        if (buffer_.capacity() > kKeptBytesMax) std::string().swap(buffer_);
    }

    std::string buffer_;
    size_t consumed_ = 0;  // Bytes of the buffer that were given out.
};

}  // namespace afd
