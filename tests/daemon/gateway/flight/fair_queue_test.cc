// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace afd::daemon {
namespace {

using testing::ElementsAre;

constexpr std::array<char, 3> kClients{};

FairQueue::Client client(size_t index) {
    return &kClients.at(index);
}

std::vector<FairQueue::Id> take_all(FairQueue& queue) {
    std::vector<FairQueue::Id> ids;
    for (; !queue.empty(); queue.pop()) ids.push_back(queue.front());
    return ids;
}

TEST(FairQueue, ClientsTakeTurnsAndKeepTheirOwnOrder) {
    FairQueue queue;
    for (const FairQueue::Id id : {1, 2, 3, 4}) queue.push(id, client(0));
    queue.push(5, client(1));
    queue.push(6, client(2));
    queue.push(7, client(2));
    EXPECT_EQ(queue.size(), 7u);
    EXPECT_EQ(queue.size_of(client(0)), 4u);
    EXPECT_THAT(take_all(queue), ElementsAre(1, 5, 6, 2, 7, 3, 4));
    EXPECT_EQ(queue.size_of(client(0)), 0u);
}

TEST(FairQueue, OneThatComesLateWaitsForASingleTurn) {
    FairQueue queue;
    for (FairQueue::Id id = 1; id <= 1000; ++id) queue.push(id, client(0));
    for (int i = 0; i < 500; ++i) queue.pop();
    queue.push(2000, client(1));
    EXPECT_EQ(queue.front(), 501u);
    queue.pop();
    EXPECT_EQ(queue.front(), 2000u);
}

TEST(FairQueue, WhatWaitsAgainComesFirst) {
    FairQueue queue;
    queue.push(5, client(0));
    const std::vector<FairQueue::Id> again = {1, 3};
    queue.set_again(again);
    EXPECT_EQ(queue.size(), 3u);
    EXPECT_EQ(queue.size_of(client(0)), 1u);
    EXPECT_THAT(take_all(queue), ElementsAre(1, 3, 5));
}

TEST(FairQueue, OneThatChangesItsClientKeepsItsTurn) {
    FairQueue queue;
    for (const FairQueue::Id id : {1, 4}) queue.push(id, client(0));
    for (const FairQueue::Id id : {2, 3}) queue.push(id, client(1));
    const std::vector<FairQueue::Id> again = {9};
    queue.set_again(again);
    queue.change_client(9, client(0), client(2));
    queue.change_client(1, client(0), client(2));
    queue.change_client(3, client(1), client(2));
    queue.change_client(2, client(1), client(1));
    EXPECT_EQ(queue.size_of(client(0)), 1u);
    EXPECT_EQ(queue.size_of(client(2)), 2u);
    EXPECT_EQ(queue.size(), 5u);
    EXPECT_THAT(take_all(queue), ElementsAre(9, 1, 4, 2, 3));
}

TEST(FairQueue, RemovesFromAnyPlace) {
    FairQueue queue;
    for (const FairQueue::Id id : {1, 2, 3}) queue.push(id, client(0));
    queue.push(4, client(1));
    const std::vector<FairQueue::Id> again = {9};
    queue.set_again(again);
    queue.remove(9, client(0));
    queue.remove(2, client(0));
    queue.remove(4, client(1));
    EXPECT_EQ(queue.size(), 2u);
    queue.push(5, client(1));
    EXPECT_THAT(take_all(queue), ElementsAre(1, 5, 3));
}

}  // namespace
}  // namespace afd::daemon
