// SPDX-License-Identifier: Apache-2.0
#include "schedule/near/near_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/near/near_socket.h"

namespace afd::schedule {
namespace {

// The other side may begin with so much while more is being copied.
constexpr size_t kPieceBytes = 64 << 10;
constexpr int kNewsAtOnce = 64;
constexpr const char* kMemoryName = "/afd-near";

constexpr size_t kWordsBytes = sizeof(NearRingWords);
NearRingWords& ring_words_at(std::byte* memory, size_t ring) {
    void* words = memory + ring * (kWordsBytes + NearLink::kRingBytes);
    return *static_cast<NearRingWords*>(words);
}

std::span<std::byte> ring_bytes_at(std::byte* memory, size_t ring) {
    return {memory + ring * (kWordsBytes + NearLink::kRingBytes) + kWordsBytes,
            NearLink::kRingBytes};
}

uint64_t rounded(uint64_t bytes, uint64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

Result<std::unique_ptr<NearLink>> NearLink::connect(const NearAddress& address) {
    AFD_ASSIGN(const int socket, connect_near(address));
    auto link = std::make_unique<NearLink>(socket);
    AFD_ASSIGN(Segment memory, Segment::create_unnamed(kMemoryName, kMemoryBytes));
    AFD_TRY(memory.prefault(0, kMemoryBytes));
    AFD_TRY(send_descriptor(socket, memory.descriptor()));
    link->use(std::move(memory), true);
    return link;
}

NearLink::NearLink(int socket) : socket_(socket) {}

NearLink::~NearLink() {
    fail();
}

void NearLink::fail() {
    has_failed_ = true;
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    for (; first_waiting_ < outgoing_.size(); ++first_waiting_) {
        --*outgoing_[first_waiting_].message.num_in_flight;
    }
    outgoing_.clear();
    first_waiting_ = 0;
}

void NearLink::use(Segment memory, bool is_maker) {
    memory_.emplace(std::move(memory));
    std::byte* bytes = memory_->data();
    const size_t out = is_maker ? 0 : 1;
    writer_ = NearWriter(ring_words_at(bytes, out), ring_bytes_at(bytes, out));
    reader_ = NearReader(ring_words_at(bytes, 1 - out), ring_bytes_at(bytes, 1 - out));
}

void NearLink::take_memory(int descriptor) {
    if (memory_) return fail();
    Result<Segment> memory =
        Segment::attach(descriptor, kMemoryName, kMemoryBytes, Segment::Access::kReadWrite);
    if (!memory.ok() || !memory.value().prefault(0, kMemoryBytes).ok()) return fail();
    use(std::move(memory).value(), false);
}

void NearLink::on_socket() {
    // Who writes without end is heard again later.
    for (int look = 0; look < kNewsAtOnce && !has_failed_; ++look) {
        const NearNews news = receive_near(socket_);
        if (news.descriptor >= 0) {
            take_memory(news.descriptor);
            ::close(news.descriptor);
        }
        if (news.is_over || (news.is_any && !memory_)) return fail();
        if (!news.is_any) return;
    }
}

void NearLink::wake() const {
    const char byte = 1;
    // Full of bytes that it has not read yet: it will wake. Gone: its end shows at the socket.
    static_cast<void>(::send(socket_, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
}

void NearLink::send(const NearMessage& message) {
    AFD_ASSERT(message.header.size() <= kHeaderBytesMax &&
                   message.payload.size() <= kPayloadBytesMax && message.num_in_flight != nullptr,
               "a message of %zu and %zu bytes",
               message.header.size(),
               message.payload.size());
    if (has_failed_) return;
    Outgoing outgoing{.head = {}, .message = message};
    outgoing.head.header_bytes = static_cast<uint32_t>(message.header.size());
    outgoing.head.payload_bytes = message.payload.size();
    std::copy(message.header.begin(), message.header.end(), outgoing.head.header);
    // In order: not past what waits.
    if (memory_ && flush() && write(outgoing)) return;
    if (has_failed_) return;
    let_wait(outgoing);
    // Whoever sleeps at the socket goes on: the caller may have something else to do.
    while (memory_ && !has_failed_ && writer_.arm() && !flush()) continue;
}

void NearLink::let_wait(const Outgoing& outgoing) {
    ++*outgoing.message.num_in_flight;
    if (outgoing_.size() == outgoing_.capacity() && first_waiting_ > 0) {
        outgoing_.erase(outgoing_.begin(),
                        outgoing_.begin() + static_cast<ptrdiff_t>(first_waiting_));
        first_waiting_ = 0;
    }
    outgoing_.push_back(outgoing);
}

bool NearLink::flush() {
    if (num_waiting() == 0) return !has_failed_;
    while (num_waiting() > 0 && write(outgoing_[first_waiting_])) {
        --*outgoing_[first_waiting_++].message.num_in_flight;
    }
    if (num_waiting() > 0 || has_failed_) return false;
    outgoing_.clear();
    first_waiting_ = 0;
    // Nobody waits for room any more: armed, the reader would go on to wake for each message.
    writer_.disarm();
    return true;
}

// Returns whether all of it has gone.
bool NearLink::write(Outgoing& outgoing) {
    static constexpr std::array<std::byte, kAlignment> kPadding{};
    const std::span<const std::byte> payload = outgoing.message.payload;
    const size_t payload_end = kHeadBytes + payload.size();
    const size_t end = rounded(payload_end, kAlignment);
    const auto next = [&]() -> std::span<const std::byte> {
        if (outgoing.sent < kHeadBytes) {
            return std::as_bytes(std::span(&outgoing.head, 1)).subspan(outgoing.sent);
        }
        if (outgoing.sent >= payload_end) {
            return std::span(kPadding).first(end - outgoing.sent);
        }
        const std::span<const std::byte> left = payload.subspan(outgoing.sent - kHeadBytes);
        return left.first(std::min(left.size(), kPieceBytes));
    };
    size_t unpublished = 0;
    bool is_full = false;
    while (outgoing.sent < end && !is_full) {
        const std::span<const std::byte> piece = next();
        const std::optional<size_t> written = writer_.write(piece);
        if (!written) {
            fail();
            return false;
        }
        outgoing.sent += *written;
        unpublished += *written;
        is_full = *written < piece.size();
        if (unpublished >= kPieceBytes || is_full || outgoing.sent == end) {
            if (unpublished > 0 && writer_.publish()) wake();
            unpublished = 0;
        }
    }
    return outgoing.sent == end;
}

bool NearLink::take(NearReceiver& receiver) {
    if (!memory_ || has_failed_) return false;
    const size_t num_before = num_waiting();
    const uint64_t sent = num_before > 0 ? outgoing_[first_waiting_].sent : 0;
    const bool was_sent =
        num_before > 0 && (flush() || num_waiting() < num_before ||
                           (!has_failed_ && outgoing_[first_waiting_].sent > sent));
    const uint64_t got = got_;
    if (!receive()) return was_sent || got_ != got;
    got_ = 0;
    receiver.on_message({head_.header, head_.header_bytes}, {payload_.get(), head_.payload_bytes});
    return true;
}

// Where the next bytes belong; nothing: the message is whole.
std::span<std::byte> NearLink::next_incoming() {
    if (got_ < kHeadBytes) return std::as_writable_bytes(std::span(&head_, 1)).subspan(got_);
    const uint64_t payload_end = kHeadBytes + head_.payload_bytes;
    if (got_ >= payload_end) {
        return std::span(padding_).first(rounded(payload_end, kAlignment) - got_);
    }
    const uint64_t from = got_ - kHeadBytes;
    const size_t bytes = std::min<uint64_t>(head_.payload_bytes - from, kPieceBytes);
    if (from + bytes > payload_room_) {
        // As much again as has come: who announces much and sends nothing gets no memory.
        const size_t room = std::min<uint64_t>(head_.payload_bytes, 2 * (from + bytes));
        auto larger = std::make_unique_for_overwrite<std::byte[]>(room);
        if (from > 0) std::memcpy(larger.get(), payload_.get(), from);
        payload_ = std::move(larger);
        payload_room_ = room;
    }
    return {payload_.get() + from, bytes};
}

// Returns whether a message is whole.
bool NearLink::receive() {
    size_t unreleased = 0;
    const auto release = [&] {
        if (unreleased > 0 && reader_.release()) wake();
        unreleased = 0;
    };
    while (true) {
        const std::span<std::byte> to = next_incoming();
        if (to.empty()) break;
        const std::optional<size_t> read = reader_.read(to);
        const bool was_head = got_ < kHeadBytes;
        got_ += read.value_or(0);
        unreleased += read.value_or(0);
        const bool is_wrong =
            was_head && got_ == kHeadBytes &&
            (head_.header_bytes > kHeaderBytesMax || head_.payload_bytes > kPayloadBytesMax);
        if (!read || is_wrong) {
            fail();
            return false;
        }
        if (unreleased >= kPieceBytes) release();
        if (*read < to.size()) {
            release();
            return false;
        }
    }
    release();
    return true;
}

bool NearLink::arm() {
    if (!memory_ || has_failed_) return false;
    const bool has_room = num_waiting() > 0 && writer_.arm();
    return reader_.arm() || has_room;
}

void NearLink::disarm() {
    if (!memory_) return;
    writer_.disarm();
    reader_.disarm();
}

}  // namespace afd::schedule
