// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a NearRing carries arrives whole and in order, whoever is faster, and a side that
// stores what it likes is found or does no harm. Oracle: near_ring.h.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "schedule/near/near_ring.h"

namespace afd::schedule {
namespace {

constexpr size_t kBytes = 1024;

struct Ring {
    NearRingWords words{};
    std::vector<std::byte> bytes = std::vector<std::byte>(kBytes);
    NearWriter writer{words, bytes};
    NearReader reader{words, bytes};
};

// The byte with this place in all that is ever sent.
std::byte byte_at(uint64_t place) {
    return std::byte(static_cast<uint8_t>(place * 31 + (place >> 8)));
}

std::vector<std::byte> bytes_from(uint64_t place, size_t count) {
    std::vector<std::byte> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = byte_at(place + i);
    return bytes;
}

TEST(NearRing, CarriesBytesInOrderBetweenThreads) {
    constexpr uint64_t kTotal = 4 << 20;
    Ring ring;
    std::thread writer([&] {
        std::mt19937 random(1);
        for (uint64_t sent = 0; sent < kTotal;) {
            const auto wanted = std::min<uint64_t>(random() % 700 + 1, kTotal - sent);
            sent += ring.writer.write(bytes_from(sent, wanted)).value();
            ring.writer.publish();
        }
    });
    std::mt19937 random(2);
    std::vector<std::byte> found(900);
    for (uint64_t got = 0; got < kTotal;) {
        const size_t count =
            ring.reader.read(std::span(found).first(random() % found.size() + 1)).value();
        ring.reader.release();
        const std::vector<std::byte> expected = bytes_from(got, count);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), found.begin()))
            << "from byte " << got;
        got += count;
    }
    writer.join();
}

TEST(NearRing, ShowsNothingBeforeItIsPublishedAndGivesNoRoomBeforeItIsReleased) {
    Ring ring;
    std::vector<std::byte> found(kBytes);
    EXPECT_EQ(ring.writer.write(bytes_from(0, 700)), 700U);
    EXPECT_EQ(ring.reader.read(found), 0U);
    ring.writer.publish();
    EXPECT_EQ(ring.writer.write(bytes_from(700, 700)), kBytes - 700);
    EXPECT_EQ(ring.reader.read(found), 700U);
    EXPECT_EQ(ring.writer.write(bytes_from(kBytes, 1)), 0U);
    ring.reader.release();
    EXPECT_EQ(ring.writer.write(bytes_from(kBytes, 800)), 700U);
}

TEST(NearRing, WakesWhoSleepsAndNobodyElse) {
    Ring ring;
    std::vector<std::byte> found(kBytes);
    ring.writer.write(bytes_from(0, 1));
    EXPECT_FALSE(ring.writer.publish()) << "nobody sleeps";
    EXPECT_TRUE(ring.reader.arm()) << "a byte is there";
    ring.reader.read(found);
    EXPECT_FALSE(ring.reader.arm());
    ring.writer.write(bytes_from(1, kBytes));
    EXPECT_TRUE(ring.writer.publish());
    ring.reader.disarm();
    ring.reader.read(found);
    EXPECT_FALSE(ring.reader.release()) << "nobody sleeps";
}

TEST(NearRing, FullWriterIsWokenByRoom) {
    Ring ring;
    std::vector<std::byte> found(kBytes);
    ring.writer.write(bytes_from(0, kBytes));
    ring.writer.publish();
    EXPECT_FALSE(ring.writer.arm());
    ring.reader.read(found);
    EXPECT_TRUE(ring.reader.release());
    EXPECT_TRUE(ring.writer.arm());
    ring.writer.disarm();
    EXPECT_FALSE(ring.reader.release());
}

// Counts that no ring can have: more bytes than it has, and more read than was written.
TEST(NearRing, FindsCountsThatCannotBe) {
    std::vector<std::byte> found(kBytes);
    for (const uint64_t wrong : {uint64_t{kBytes + 1}, uint64_t{1} << 63}) {
        Ring ring;
        ring.words.written = wrong;
        EXPECT_EQ(ring.reader.read(found), std::nullopt) << wrong;
        ring.words.read = wrong;
        EXPECT_EQ(ring.writer.write(found), std::nullopt) << wrong;
    }
}

}  // namespace
}  // namespace afd::schedule
