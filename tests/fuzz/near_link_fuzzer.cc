// SPDX-License-Identifier: Apache-2.0
//
// What a neighbour stores in the memory of a link. Input: stores of up to 16 bytes, and in between
// looks of the other side, which sends, too. Oracle: the sanitizers, and that headers have no more
// bytes than they may.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "proto/check.h"
#include "schedule/near/near_link.h"
#include "schedule/near/near_socket.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using afd::schedule::NearLink;
using afd::schedule::NearReceiver;
using afd::schedule::NearRingWords;

constexpr size_t kBytes = 2 * (sizeof(NearRingWords) + NearLink::kRingBytes);
constexpr size_t kMessageBytes = 300;

class Checker final : public NearReceiver {
  public:
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        AFD_ASSERT(header.size() <= NearLink::kHeaderBytesMax, "%zu bytes", header.size());
        for (const std::byte byte : payload) sum += std::to_integer<uint64_t>(byte);
    }
    uint64_t sum = 0;  // All of a payload is there.
};

// The hostile side's memory, which is handed over again and again.
struct Memory {
    Memory() : descriptor(::memfd_create("near_link_fuzzer", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
        AFD_ASSERT(::ftruncate(descriptor, kBytes) == 0, "no memory");
        ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        void* mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        AFD_ASSERT(mapped != MAP_FAILED, "no memory");
        bytes = static_cast<std::byte*>(mapped);
    }
    int descriptor;
    std::byte* bytes;
};

// Most stores go where counts and heads are.
size_t place_of(uint32_t number) {
    const size_t ring = number & 1;
    const bool is_near_front = (number & 2) != 0;
    const size_t front = sizeof(NearRingWords) + 512;
    const size_t size = is_near_front ? front : kBytes / 2;
    return ring * (kBytes / 2) + (number >> 2) % size;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Memory memory;
    std::memset(memory.bytes, 0, kBytes);
    std::array<int, 2> ends{};
    AFD_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends.data()) == 0,
               "no sockets");
    NearLink link(ends[0]);
    AFD_ASSERT(afd::schedule::send_descriptor(ends[1], memory.descriptor).ok(), "not handed over");
    link.on_socket();
    uint32_t num_in_flight = 0;
    const std::array<std::byte, kMessageBytes> message{};
    Checker checker;
    afd::fuzz::FuzzInput input(data, size);
    while (!input.is_empty() && !link.has_failed()) {
        const auto choice = input.take<uint8_t>();
        const size_t count = std::min<size_t>(choice & 31, 16);
        if (count == 0) {
            link.send({std::span(message).first(80), message, &num_in_flight});
            for (int i = 0; i < 4; ++i) link.take(checker);
            if (!link.arm()) link.on_socket();
            link.disarm();
            continue;
        }
        const size_t place = place_of(input.take<uint32_t>());
        input.fill({memory.bytes + std::min(place, kBytes - 16), count});
    }
    link.fail();
    AFD_ASSERT(num_in_flight == 0, "%u messages are still in flight", num_in_flight);
    ::close(ends[1]);
    return 0;
}
