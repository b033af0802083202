// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxHeader, UcxMessage: what travels between two workers over UCX, always as an active message
// whose header is a UcxHeader.
//
//   kind         from      payload
//   kHello       session   -                                opens a connection (R13)
//   kWelcome     rank      flags int32 [M], acknowledged int32 [M]
//   kDescriptor  session   num_rows records, then ids int32 [BS * K1]; those behind the last that
//                          is not masked are left out
//   kResults     rank      num_rows records; `round` is what is acknowledged
//   kHeartbeat   both      UcxBeat
//   kRing        both      -                                rings the doorbell in any case
//   kWords       both      the words of a two-phase round that the peer sees, int32 [7] of a
//                          session and [3] of a rank; with an offer or a grant its table
//   kBlock       both      bytes of a two-phase round, from `offset` on
//   kProbe       session   any bytes, which nobody reads; `offset` is what it is answered with
//   kAnswer      rank      -
//
// A record is a UcxRecord and then a whole row of its direction (HS or HS' bytes).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "schedule/context/heartbeat.h"
#include "schedule/ucx/ucx_link_meter.h"

namespace afd::schedule {

enum class UcxKind : uint32_t {
    kHello = 1,
    kWelcome = 2,
    kDescriptor = 3,
    kResults = 4,
    kHeartbeat = 5,
    kRing = 6,
    kWords = 7,
    kBlock = 8,
    kProbe = 9,
    kAnswer = 10,
};

// "AFDUCX04" read as a little-endian number: another layout gets another number.
inline constexpr uint64_t kUcxMagic = 0x3430584355444641;

struct UcxHeader {
    uint64_t magic;
    uint64_t instance_id;
    uint64_t epoch;       // Of the session's process that opened the connection (R13).
    uint64_t connection;  // Its number, counted by that process.
    UcxKind kind;
    uint32_t session;
    uint32_t rank;
    uint32_t micro_batch;  // kDescriptor, kResults.
    int32_t round;         // kDescriptor, kResults, kBlock.
    int32_t layer_id;      // kDescriptor.
    uint32_t num_rows;     // Records.
    uint32_t word;         // kWords: which of them is the news.
    // kDescriptor, kResults: which one of its lane it is, counted from 1 by the process that
    // published it; sent again, it is the same. kWords, kBlock: how many of both the connection
    // brought before.
    uint64_t number;
    uint64_t offset;  // kBlock: first byte. kProbe, kAnswer: when the probe left.
};
static_assert(sizeof(UcxHeader) == 80 && std::is_trivially_copyable_v<UcxHeader>);

struct UcxBeat {
    HeartbeatImage image;
    UcxBeatTimes times;
};
static_assert(sizeof(UcxBeat) == 64 && std::is_trivially_copyable_v<UcxBeat>, "no padding");

struct UcxRecord {
    // Of `bytes`: the slot is refused (R11) and its row means nothing.
    static constexpr uint32_t kRefused = 0xffffffff;

    uint32_t slot;   // token_idx * K1 + k.
    uint32_t bytes;  // Of the row that are meant.
    uint64_t reserve;
};
static_assert(sizeof(UcxRecord) == 16, "rows keep the alignment of SSE");

// A message on the sender's side: its bytes stay where they are until UCX has let go of them.
// Guarded by the lock of its UcxWorker, all but the payload of a message that nobody sends.
struct UcxMessage {
    UcxHeader header{};
    std::unique_ptr<std::byte[]> payload;
    const std::byte* borrowed = nullptr;  // What is sent instead, if not null.
    size_t payload_bytes = 0;
    uint32_t num_in_flight = 0;

    const std::byte* data() const { return borrowed == nullptr ? payload.get() : borrowed; }
};

}  // namespace afd::schedule
