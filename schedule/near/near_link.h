// SPDX-License-Identifier: Apache-2.0
#pragma once

// NearLink: messages between two workers of one host, each way through a ring in memory that both
// map (near_ring.h). Whoever connects makes the memory, sealed, and hands it over.
//
// A socket of the kernel goes with it. It wakes whoever sleeps, by a byte, and tells that the other
// side is gone, however it ended. Memory and socket end with the last process that has them.
//
// A message is a header and a payload. What has no room yet stays where it is, and goes on in
// take(); a message may be larger than the ring. One thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/status.h"
#include "schedule/near/near_address.h"
#include "schedule/near/near_ring.h"
#include "schedule/shared_memory/segment.h"

namespace afd::schedule {

// What is sent. The bytes stay the caller's, and as they are, until `num_in_flight` says so.
struct NearMessage {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
    uint32_t* num_in_flight = nullptr;  // Counted up by send(), and down when it has gone.
};

class NearReceiver {
  public:
    virtual ~NearReceiver() = default;
    // The bytes are copies of what the peer wrote: check them. It may send on the link, and fail()
    // it.
    virtual void on_message(std::span<const std::byte> header,
                            std::span<const std::byte> payload) = 0;
};

class NearLink {
  public:
    static constexpr size_t kHeaderBytesMax = 112;
    // Of one direction. A publication of medium size has room, and a core's cache for it.
    static constexpr size_t kRingBytes = 512 << 10;
    // Of a link: both rings, each with its words in front.
    static constexpr size_t kMemoryBytes = 2 * (sizeof(NearRingWords) + kRingBytes);
    // A peer that announces more is wrong; memory grows with what arrives.
    static constexpr uint64_t kPayloadBytesMax = uint64_t{1} << 30;

    // Errors: kUnavailable: nobody listens there. kPermissionDenied: another user does.
    // kResourceExhausted: no memory, no descriptors.
    static Result<std::unique_ptr<NearLink>> connect(const NearAddress& address);
    // Of a socket that was accepted, which it takes. The memory comes with the first byte; until
    // then nothing is sent.
    explicit NearLink(int socket);
    ~NearLink();
    NearLink(const NearLink&) = delete;
    NearLink& operator=(const NearLink&) = delete;

    int socket() const { return socket_; }
    // The peer is gone, or has said what cannot be. Nothing more is sent or received.
    bool has_failed() const { return has_failed_; }
    void fail();

    // REQUIRES: at most kHeaderBytesMax and kPayloadBytesMax. Dropped once the link has failed.
    void send(const NearMessage& message);
    // Goes on sending, and receives: at most one message. Returns whether anything moved.
    bool take(NearReceiver& receiver);
    // The socket has something: wake-ups, the memory, the end.
    void on_socket();
    // Before sleeping at the socket. Returns whether there is something to take() already.
    bool arm();
    void disarm();

  private:
    // In front of each message; what follows is rounded up to it.
    static constexpr size_t kAlignment = 32;
    struct Head {
        uint32_t header_bytes;
        uint32_t reserve;
        uint64_t payload_bytes;
        std::byte header[kHeaderBytesMax];
    };
    static_assert(sizeof(Head) % kAlignment == 0);
    static constexpr size_t kHeadBytes = sizeof(Head);

    // A message on its way out: `sent` bytes of head, payload and padding have gone.
    struct Outgoing {
        Head head;
        NearMessage message;
        size_t sent = 0;
    };

    void use(Segment memory, bool is_maker);
    void take_memory(int descriptor);
    bool write(Outgoing& outgoing);
    size_t num_waiting() const { return outgoing_.size() - first_waiting_; }
    void let_wait(const Outgoing& outgoing);
    bool flush();
    std::span<std::byte> next_incoming();
    bool receive();
    void wake() const;

    int socket_;
    bool has_failed_ = false;
    std::optional<Segment> memory_;
    NearWriter writer_;
    NearReader reader_;
    // What had no room, from first_waiting_ on. It keeps its memory: a queue with nodes would
    // allocate with every other message while the link is busy.
    std::vector<Outgoing> outgoing_;
    size_t first_waiting_ = 0;
    // What comes in: its head, its payload, and how many bytes of both and of padding are here.
    Head head_{};
    std::unique_ptr<std::byte[]> payload_;
    size_t payload_room_ = 0;
    uint64_t got_ = 0;
    std::array<std::byte, kAlignment> padding_{};
};

}  // namespace afd::schedule
