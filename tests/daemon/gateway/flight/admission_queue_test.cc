// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/admission_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "model/attention/kv_cache.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kBlock = model::kKvBlockTokens;

// Session that the next request goes to; -1 if none can run.
int admit(AdmissionQueue& queue, uint64_t expected_id) {
    const auto admission = queue.admit_next();
    if (!admission) return -1;
    EXPECT_EQ(admission->id, expected_id);
    return static_cast<int>(admission->session);
}

TEST(AdmissionQueue, GoesToTheWorkerWithTheMostFreeRoom) {
    AdmissionQueue queue(2, 10, 8);
    queue.worker_ready(0, 10 * kBlock);
    queue.worker_ready(1, 12 * kBlock);
    for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(queue.enqueue(id, 0, 3 * kBlock).ok());
    EXPECT_EQ(admit(queue, 1), 1);  // 10 and 12 free.
    EXPECT_EQ(admit(queue, 2), 0);  // 10 and 9.
    EXPECT_EQ(admit(queue, 3), 1);  // 7 and 9.
}

TEST(AdmissionQueue, ReservesWholeBlocks) {
    AdmissionQueue queue(1, 10, 8);
    queue.worker_ready(0, 2 * kBlock);
    ASSERT_TRUE(queue.enqueue(1, 0, kBlock + 1).ok());
    ASSERT_TRUE(queue.enqueue(2, 0, 1).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_EQ(queue.workers()[0].used_blocks, 2);
    EXPECT_EQ(admit(queue, 2), -1);
    EXPECT_TRUE(queue.remove(1));
    EXPECT_EQ(admit(queue, 2), 0);
}

TEST(AdmissionQueue, HoldsBackThoseBehindOneThatDoesNotFit) {
    AdmissionQueue queue(1, 10, 8);
    queue.worker_ready(0, 4 * kBlock);
    ASSERT_TRUE(queue.enqueue(1, 0, 3 * kBlock).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    ASSERT_TRUE(queue.enqueue(2, 0, 2 * kBlock).ok());
    ASSERT_TRUE(queue.enqueue(3, 0, kBlock).ok());
    EXPECT_EQ(admit(queue, 2), -1);
    queue.remove(1);
    EXPECT_EQ(admit(queue, 2), 0);
    EXPECT_EQ(admit(queue, 3), 0);
}

TEST(AdmissionQueue, RunsAtMostMaxSequencesOnAWorker) {
    AdmissionQueue queue(1, 10, 2);
    queue.worker_ready(0, 100 * kBlock);
    for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(queue.enqueue(id, 0, 1).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_EQ(admit(queue, 2), 0);
    EXPECT_EQ(admit(queue, 3), -1);
}

TEST(AdmissionQueue, RefusesMoreThanMaxQueueWaiting) {
    AdmissionQueue queue(1, 1, 8);
    ASSERT_TRUE(queue.enqueue(1, 0, 1).ok());
    const Result<> refused = queue.enqueue(2, 0, 1);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message, HasSubstr("max_queue = 1"));
}

// Goal: a connection that sends without end leaves a place and a turn for the next. Method:
// connections that ask until they are refused, one after the other. Oracle: each gets some, the
// first no more than two of three, it takes six to fill the queue, and the queue keeps its bound.
TEST(AdmissionQueue, GreedyConnectionsLeavePlacesForTheNext) {
    constexpr uint64_t kPlaces = 512;
    AdmissionQueue queue(1, kPlaces, 8);
    const std::vector<char> connections(20);
    uint64_t next_id = 1;
    for (size_t i = 0; i < connections.size() && queue.num_queued() < kPlaces; ++i) {
        uint64_t num_taken = 0;
        std::string refusal;
        while (refusal.empty()) {
            EXPECT_EQ(queue.check_place(&connections[i]).ok(), true);
            const Result<> taken = queue.enqueue(next_id, 0, 1, &connections[i]);
            if (taken.ok()) {
                ++next_id;
                ++num_taken;
            } else {
                refusal = taken.error().message;
            }
            if (!queue.check_place(&connections[i]).ok()) {
                refusal = queue.check_place(&connections[i]).error().message;
            }
        }
        EXPECT_GE(num_taken, 1U) << "connection " << i;
        EXPECT_LE(num_taken, kPlaces * 2 / 3 + 1);
        if (i == 0) {
            EXPECT_THAT(refusal, HasSubstr("places of the queue are kept for others"));
        }
        EXPECT_EQ(queue.num_queued() == kPlaces, i >= 5) << "connection " << i;
    }
    EXPECT_EQ(queue.num_queued(), kPlaces);
    // The second connection's first request runs second.
    queue.worker_ready(0, 100 * kBlock);
    EXPECT_EQ(queue.admit_next()->id, 1U);
    const uint64_t second = queue.admit_next()->id;
    EXPECT_GT(second, kPlaces / 2);
}

TEST(AdmissionQueue, WithoutAQueueWhatCanRunAtOnceIsStillTaken) {
    AdmissionQueue queue(1, 0, 8);
    queue.worker_ready(0, kBlock);
    ASSERT_TRUE(queue.enqueue(1, 0, 1).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_FALSE(queue.enqueue(2, 0, 1).ok());
}

TEST(AdmissionQueue, RequestsOfADeadWorkerComeFirstInTheirOldOrder) {
    AdmissionQueue queue(2, 10, 8);
    queue.worker_ready(0, 2 * kBlock);
    queue.worker_ready(1, 2 * kBlock);
    for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(queue.enqueue(id, 0, kBlock).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_EQ(admit(queue, 2), 1);
    EXPECT_EQ(admit(queue, 3), 0);
    EXPECT_EQ(admit(queue, 4), 1);

    EXPECT_THAT(queue.worker_gone(1), ElementsAre(2, 4));
    EXPECT_THAT(queue.worker_gone(0), ElementsAre(1, 3));

    EXPECT_EQ(queue.num_queued(), 5);
    queue.worker_ready(0, 100 * kBlock);
    for (uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(admit(queue, id), 0);
    EXPECT_THAT(queue.worker_gone(1), IsEmpty());
}

TEST(AdmissionQueue, WorkerThatWaitsForAPeerIsGivenNothingWhileAnotherGoesOn) {
    AdmissionQueue queue(2, 10, 2);
    queue.worker_ready(0, 10 * kBlock);
    queue.worker_ready(1, 4 * kBlock);
    for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(queue.enqueue(id, 0, 1).ok());
    queue.worker_waits(0, true);
    EXPECT_EQ(admit(queue, 1), 1) << "although 0 has more room";
    EXPECT_EQ(admit(queue, 2), 1);
    EXPECT_EQ(admit(queue, 3), -1) << "1 is full, and its end is near; that of 0's wait is not";
    queue.worker_waits(1, true);
    EXPECT_EQ(admit(queue, 3), 0) << "all wait";
    queue.worker_waits(1, false);
    EXPECT_EQ(admit(queue, 4), -1);
    queue.worker_waits(0, false);
    EXPECT_EQ(admit(queue, 4), 0);
    // The wait of a process ends with it.
    queue.worker_waits(1, true);
    queue.worker_gone(1);
    queue.worker_ready(1, 100 * kBlock);
    EXPECT_FALSE(queue.workers()[1].is_waiting);
}

TEST(AdmissionQueue, SuspectsGoFirstAndOneAtATimeToAnIdleWorker) {
    AdmissionQueue queue(2, 10, 8);
    queue.worker_ready(0, 10 * kBlock);
    for (uint64_t id = 1; id <= 4; ++id) {
        ASSERT_TRUE(queue.enqueue(id, 0, kBlock).ok());
        EXPECT_EQ(admit(queue, id), 0);
    }
    queue.worker_gone(0);
    queue.suspect(3);
    queue.suspect(2);
    EXPECT_EQ(queue.num_queued(), 4U);
    queue.worker_ready(0, 10 * kBlock);
    const auto trial = queue.admit_next();
    ASSERT_TRUE(trial);
    EXPECT_EQ(trial->id, 2U) << "it came before the other";
    EXPECT_TRUE(trial->is_trial);
    EXPECT_TRUE(queue.is_on_trial(2));
    EXPECT_FALSE(queue.is_on_trial(3));
    EXPECT_EQ(queue.admit_next(), std::nullopt) << "nobody joins it";
    // Another worker is for the others, also if it is idle.
    queue.worker_ready(1, 10 * kBlock);
    const auto other = queue.admit_next();
    ASSERT_TRUE(other);
    EXPECT_EQ(other->id, 1U);
    EXPECT_FALSE(other->is_trial);
    EXPECT_EQ(admit(queue, 4), 1);
    queue.end_trial(2);
    EXPECT_EQ(queue.workers()[0].num_sequences, 0U);
    const auto next = queue.admit_next();
    ASSERT_TRUE(next);
    EXPECT_EQ(next->id, 3U);
    EXPECT_EQ(next->session, 0U);
    EXPECT_EQ(admit(queue, 2), 1) << "it is a suspect no more";
    // An end of any kind frees the worker.
    EXPECT_TRUE(queue.remove(3));
    EXPECT_FALSE(queue.workers()[0].has_suspect);
    ASSERT_TRUE(queue.enqueue(5, 0, kBlock).ok());
    EXPECT_EQ(admit(queue, 5), 0);
}

TEST(AdmissionQueue, ASuspectThatLosesItsWorkerOrWaitsCanBeRemovedOrTriedAgain) {
    AdmissionQueue queue(1, 10, 8);
    queue.worker_ready(0, 10 * kBlock);
    for (uint64_t id = 1; id <= 2; ++id) {
        ASSERT_TRUE(queue.enqueue(id, 0, kBlock).ok());
        EXPECT_EQ(admit(queue, id), 0);
    }
    queue.worker_gone(0);
    queue.suspect(1);
    queue.suspect(2);
    queue.change_client(2, &queue);
    EXPECT_TRUE(queue.remove(2));
    queue.worker_ready(0, 10 * kBlock);
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_THAT(queue.worker_gone(0), ElementsAre(1));
    EXPECT_FALSE(queue.is_on_trial(1)) << "who knows why says so again";
    queue.suspect(1);
    queue.worker_ready(0, 10 * kBlock);
    EXPECT_TRUE(queue.admit_next()->is_trial);
    EXPECT_EQ(queue.num_queued(), 0U);
    EXPECT_EQ(queue.num_running(), 1U);
}

TEST(AdmissionQueue, ATrialIsOnANewWorkerIfThereIsOneAndOnAnotherThanTheAvoided) {
    AdmissionQueue queue(3, 10, 8);
    queue.worker_ready(0, 10 * kBlock);
    ASSERT_TRUE(queue.enqueue(1, 0, kBlock).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_TRUE(queue.remove(1));
    ASSERT_TRUE(queue.enqueue(2, 0, kBlock).ok());
    queue.worker_ready(1, 10 * kBlock);
    EXPECT_EQ(admit(queue, 2), 0);
    queue.worker_gone(0);
    queue.worker_ready(0, 10 * kBlock);
    ASSERT_TRUE(queue.enqueue(3, 0, kBlock).ok());
    EXPECT_EQ(admit(queue, 2), 0);
    EXPECT_EQ(admit(queue, 3), 1);
    EXPECT_TRUE(queue.remove(3));
    queue.worker_gone(0);
    queue.suspect(2, 0);
    EXPECT_TRUE(queue.is_another_ready(0));
    queue.worker_ready(0, 10 * kBlock);
    queue.worker_ready(2, 10 * kBlock);
    EXPECT_EQ(admit(queue, 2), 2) << "0 is avoided, and 1 was given others";
    queue.worker_gone(2);
    queue.suspect(2, 0);
    EXPECT_EQ(admit(queue, 2), 1);
    queue.worker_gone(1);
    queue.suspect(2, 0);
    EXPECT_FALSE(queue.is_another_ready(0));
    EXPECT_EQ(admit(queue, 2), 0) << "there is no other";
}

// Goal: a suspect waits neither for ever nor holds up everybody. Method: no worker is idle while
// requests come and go without end. Oracle: so many of them go before it, and no more; when those
// that run on one worker have ended it runs there, and the others go on.
TEST(AdmissionQueue, ASuspectGetsAWorkerOfItsOwnAfterAWhile) {
    AdmissionQueue queue(2, 10, 2);
    queue.worker_ready(0, 10 * kBlock);
    ASSERT_TRUE(queue.enqueue(1, 0, kBlock).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    queue.worker_ready(1, 10 * kBlock);
    for (uint64_t id = 2; id <= 3; ++id) {
        ASSERT_TRUE(queue.enqueue(id, 0, kBlock).ok());
        EXPECT_EQ(admit(queue, id), 1 - static_cast<int>(id % 2));
    }
    queue.worker_gone(0);
    EXPECT_EQ(admit(queue, 1), 1);
    queue.suspect(3);
    uint64_t running = 1;
    uint64_t next_id = 4;
    for (uint64_t i = 0; i < AdmissionQueue::kPassesMax; ++i) {
        ASSERT_TRUE(queue.enqueue(next_id, 0, kBlock).ok());
        EXPECT_EQ(queue.admit_next(), std::nullopt) << "worker 1 is full";
        EXPECT_TRUE(queue.remove(running));
        EXPECT_EQ(admit(queue, next_id), 1);
        running = next_id++;
    }
    EXPECT_TRUE(queue.remove(running));
    ASSERT_TRUE(queue.enqueue(next_id, 0, kBlock).ok());
    EXPECT_EQ(queue.admit_next(), std::nullopt) << "there is room, but it is kept";
    EXPECT_TRUE(queue.remove(2));
    EXPECT_EQ(admit(queue, 3), 1);
    EXPECT_TRUE(queue.is_on_trial(3));
    queue.worker_ready(0, 10 * kBlock);
    EXPECT_EQ(admit(queue, next_id), 0);
}

constexpr Reservation kGrowing = {.grows = true};

// A step is four blocks.
TEST(AdmissionQueueGrowing, ANewcomerLeavesEverybodyAStep) {
    AdmissionQueue queue(1, 10, 8, kGrowing);
    queue.worker_ready(0, 12 * kBlock);
    for (uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(queue.enqueue(id, kBlock, 12 * kBlock).ok());
    }
    EXPECT_EQ(queue.reserved_tokens(1), 5 * kBlock);
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_EQ(admit(queue, 2), 0);
    EXPECT_EQ(admit(queue, 3), -1);
    EXPECT_EQ(queue.workers()[0].used_blocks, 10U);
    for (uint64_t i = 0; i < kBlock + 1; ++i) queue.on_token(1);
    EXPECT_EQ(queue.workers()[0].used_blocks, 12U) << "its step moves on with its tokens";
    EXPECT_TRUE(queue.remove(2));
    EXPECT_EQ(queue.workers()[0].used_blocks, 7U);
    EXPECT_EQ(admit(queue, 3), 0);
}

TEST(AdmissionQueueGrowing, NoneReservesMoreThanItMayComeTo) {
    AdmissionQueue queue(1, 10, 8, kGrowing);
    queue.worker_ready(0, 12 * kBlock);
    ASSERT_TRUE(queue.enqueue(1, kBlock, 2 * kBlock).ok());
    EXPECT_EQ(queue.reserved_tokens(1), 2 * kBlock);
    EXPECT_EQ(admit(queue, 1), 0);
    for (uint64_t i = 0; i < 2 * kBlock; ++i) queue.on_token(1);
    EXPECT_EQ(queue.workers()[0].used_blocks, 2U);
}

TEST(AdmissionQueueGrowing, WhoGivesWayComesFirstAndWaitsForARoomThatLasts) {
    AdmissionQueue queue(1, 10, 8, kGrowing);
    queue.worker_ready(0, 12 * kBlock);
    for (uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(queue.enqueue(id, kBlock, 12 * kBlock).ok());
    }
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_EQ(admit(queue, 2), 0);
    for (uint64_t i = 0; i < 4 * kBlock; ++i) queue.on_token(1);
    EXPECT_EQ(queue.workers()[0].used_blocks, 14U) << "more than there is";
    EXPECT_EQ(queue.workers()[0].free_blocks(), 0U);
    client::Status status;
    status.add_workers()->set_role("attention");
    queue.fill_status(status);
    EXPECT_EQ(status.workers(0).kv_tokens_used(), 12 * kBlock);

    EXPECT_TRUE(queue.give_way(2));
    EXPECT_EQ(queue.session_of(2), std::nullopt);
    EXPECT_EQ(queue.num_queued(), 2U);
    EXPECT_EQ(queue.admit_next(), std::nullopt) << "three blocks are free, and it wants a step";
    EXPECT_TRUE(queue.remove(1));
    EXPECT_EQ(admit(queue, 2), 0) << "before those that came later";
    EXPECT_EQ(admit(queue, 3), 0);
}

TEST(AdmissionQueueGrowing, NobodyGivesWayToNobody) {
    AdmissionQueue queue(1, 10, 8, kGrowing);
    queue.worker_ready(0, 12 * kBlock);
    ASSERT_TRUE(queue.enqueue(1, kBlock, 12 * kBlock).ok());
    EXPECT_EQ(admit(queue, 1), 0);
    EXPECT_FALSE(queue.give_way(1));
    EXPECT_EQ(queue.session_of(1), 0U) << "nothing has changed";
    ASSERT_TRUE(queue.enqueue(2, kBlock, 12 * kBlock).ok());
    EXPECT_EQ(admit(queue, 2), 0);
    EXPECT_TRUE(queue.remove(2));
    EXPECT_TRUE(queue.give_way(1)) << "the other may have had its room when that was said";
}

TEST(AdmissionQueue, DeadWorkerIsGivenNothing) {
    AdmissionQueue queue(1, 10, 8);
    queue.worker_ready(0, 10 * kBlock);
    queue.worker_gone(0);
    ASSERT_TRUE(queue.enqueue(1, 0, 1).ok());
    EXPECT_EQ(admit(queue, 1), -1);
    EXPECT_EQ(queue.session_of(1), std::nullopt);
}

// Goal: no sequence of events loses, doubles or over-commits anything. Method: random events
// against a plain model. Oracle: every request is waiting or running on a ready worker, and the
// reservations of a worker are the sum over its requests and within its room; suspects are alone.
TEST(AdmissionQueue, RandomEventsKeepTheBooks) {
    constexpr uint32_t kWorkers = 3;
    constexpr uint64_t kRoom = 20;
    std::mt19937_64 random(20261121);
    AdmissionQueue queue(kWorkers, 50, 4);
    std::map<uint64_t, uint64_t> tokens;  // Of every request that is alive.
    std::set<uint32_t> ready;
    uint64_t next_id = 1;
    for (int step = 0; step < 20000; ++step) {
        const auto worker = static_cast<uint32_t>(random() % kWorkers);
        switch (random() % 8) {
            case 0:
                if (ready.insert(worker).second) queue.worker_ready(worker, kRoom * kBlock);
                break;
            case 1:
                if (random() % 10 == 0) {
                    for (const uint64_t id : queue.worker_gone(worker)) {
                        if (random() % 2 == 0) queue.suspect(id);
                    }
                    ready.erase(worker);
                }
                break;
            case 2:
            case 3:
                if (!tokens.empty()) {
                    auto victim = tokens.begin();
                    std::advance(victim, static_cast<long>(random() % tokens.size()));
                    EXPECT_TRUE(queue.remove(victim->first));
                    tokens.erase(victim);
                }
                break;
            case 4:
            case 5: {
                const uint64_t wanted = 1 + random() % (kRoom * kBlock);
                if (queue.enqueue(next_id, 0, wanted).ok()) tokens[next_id] = wanted;
                ++next_id;
                break;
            }
            default:
                while (queue.admit_next()) {
                }
        }
        std::vector<uint64_t> used(kWorkers);
        std::vector<uint32_t> running(kWorkers);
        std::vector<bool> has_trial(kWorkers);
        for (const auto& [id, wanted] : tokens) {
            if (queue.is_on_trial(id) && random() % 8 == 0) queue.end_trial(id);
            const auto session = queue.session_of(id);
            if (!session) continue;
            if (queue.is_on_trial(id)) has_trial[*session] = true;
            ASSERT_TRUE(ready.contains(*session)) << "step " << step;
            used[*session] += model::BlockAllocator::blocks_for(wanted);
            ++running[*session];
        }
        size_t num_running = 0;
        for (uint32_t i = 0; i < kWorkers; ++i) {
            ASSERT_EQ(queue.workers()[i].used_blocks, used[i]) << "step " << step;
            ASSERT_EQ(queue.workers()[i].num_sequences, running[i]) << "step " << step;
            ASSERT_LE(used[i], kRoom);
            ASSERT_LE(running[i], 4U);
            ASSERT_EQ(queue.workers()[i].has_suspect, has_trial[i]) << "step " << step;
            if (has_trial[i]) {
                ASSERT_EQ(running[i], 1U) << "step " << step;
            }
            num_running += running[i];
        }
        ASSERT_EQ(queue.num_running(), num_running);
        ASSERT_EQ(queue.num_queued(), tokens.size() - num_running);
    }
}

}  // namespace
}  // namespace afd::daemon
