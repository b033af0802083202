// SPDX-License-Identifier: Apache-2.0

#include "schedule/ucx/ucx_outbox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "proto/sanitizers.h"

namespace afd::schedule {
namespace {

constexpr size_t kOutboxRowBytes = 32;

// Of lane and round alone: the connection adds the rest.
UcxHeader header_of(int32_t round) {
    UcxHeader header{};
    header.kind = UcxKind::kDescriptor;
    header.round = round;
    return header;
}

void add(UcxOutbox& outbox, uint32_t slot, int value) {
    outbox.add(slot, std::vector<std::byte>(kOutboxRowBytes, static_cast<std::byte>(value)));
}

std::byte first_byte(const UcxMessage& message) {
    return message.data()[sizeof(UcxRecord)];
}

// Goal: a lane's publications are written in one place, which is all the memory that the lane has
// in one direction. Oracle: the address, over rounds that the peer has let go of.
TEST(UcxOutbox, WritesOneRoundBehindTheOtherInTheSamePlace) {
    const auto made = UcxOutbox::make(kOutboxRowBytes, 2, sizeof(int32_t));
    UcxOutbox& outbox = *made.value();
    const std::byte* place = nullptr;
    for (int32_t round = 1; round <= 3; ++round) {
        add(outbox, 0, round);
        const UcxMessage& message = outbox.seal(header_of(round));
        EXPECT_EQ(message.header.round, round);
        EXPECT_EQ(message.header.num_rows, 1U);
        EXPECT_EQ(first_byte(message), static_cast<std::byte>(round));
        if (place == nullptr) place = message.data();
        EXPECT_EQ(message.data(), place);
        outbox.release();
    }
}

TEST(UcxOutbox, KeepsARoundUntilItIsReleased) {
    const auto made = UcxOutbox::make(kOutboxRowBytes, 2, sizeof(int32_t));
    UcxOutbox& outbox = *made.value();
    EXPECT_EQ(outbox.kept_for_another_send(), nullptr) << "nothing was published";
    add(outbox, 1, 7);
    const std::array<int32_t, 1> tail = {5};
    outbox.seal(header_of(1), std::as_bytes(std::span(tail)));
    const UcxMessage* kept = outbox.kept_for_another_send();
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(kept->header.round, 1);
    EXPECT_EQ(first_byte(*kept), std::byte{7});
    int32_t id = 0;
    ASSERT_EQ(outbox.kept_tail().size(), sizeof(id));
    std::memcpy(&id, outbox.kept_tail().data(), sizeof(id));
    EXPECT_EQ(id, 5);
    outbox.release();
    EXPECT_EQ(outbox.kept_for_another_send(), nullptr);
}

// Goal: bytes that UCX still has are neither changed nor freed, and what takes their place is used
// again. Method: rounds that are released, and one that is sent again, while their messages have
// not left. Oracle: the bytes of each, and how many places there are.
TEST(UcxOutbox, LeavesWhatIsOnItsWayAlone) {
    const auto made = UcxOutbox::make(kOutboxRowBytes, 2, sizeof(int32_t));
    UcxOutbox& outbox = *made.value();
    add(outbox, 0, 1);
    UcxMessage& first = outbox.seal(header_of(1));
    first.num_in_flight = 1;
    UcxMessage* again = outbox.kept_for_another_send();
    ASSERT_NE(again, nullptr);
    EXPECT_NE(again, &first);
    EXPECT_EQ(again->header.round, 1);
    EXPECT_EQ(again->num_in_flight, 0U);
    EXPECT_EQ(first_byte(*again), std::byte{1});
    again->num_in_flight = 1;
    outbox.release();

    add(outbox, 0, 2);
    UcxMessage& second = outbox.seal(header_of(2));
    EXPECT_EQ(first_byte(second), std::byte{2});
    EXPECT_EQ(first_byte(first), std::byte{1});
    EXPECT_EQ(first_byte(*again), std::byte{1});
    EXPECT_EQ(first.header.round, 1);

    first.num_in_flight = 0;
    second.num_in_flight = 1;
    outbox.release();
    add(outbox, 0, 3);
    EXPECT_EQ(&outbox.seal(header_of(3)), &first) << "one that is free serves again";
    EXPECT_EQ(first_byte(second), std::byte{2});
}

// Oracle: how many messages have not left, counted here.
TEST(UcxOutbox, IsCloggedByMessagesThatDoNotLeave) {
    const auto made = UcxOutbox::make(kOutboxRowBytes, 2, sizeof(int32_t));
    UcxOutbox& outbox = *made.value();
    std::vector<UcxMessage*> unsent;
    for (int32_t round = 1; unsent.size() <= UcxOutbox::kUnsentMax; ++round) {
        EXPECT_FALSE(outbox.is_clogged()) << unsent.size();
        UcxMessage& message = outbox.seal(header_of(round));
        message.num_in_flight = 1;
        unsent.push_back(&message);
        outbox.release();
    }
    EXPECT_TRUE(outbox.is_clogged());
    unsent[1]->num_in_flight = 0;
    EXPECT_FALSE(outbox.is_clogged());
}

// The sanitizers' allocators end the process instead.
#if !AFD_SANITIZED

TEST(UcxOutbox, WithoutMemoryIsAnError) {
    constexpr size_t kMoreThanAnAddressSpace = size_t{1} << 60;
    const auto made = UcxOutbox::make(kMoreThanAnAddressSpace, 1, 0);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kResourceExhausted);
}

#endif

}  // namespace
}  // namespace afd::schedule
