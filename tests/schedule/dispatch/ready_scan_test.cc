// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/ready_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "schedule/layout/round.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

constexpr uint32_t kRank = 1;
constexpr uint32_t kLayers = 4;

class ReadyScanTest : public ::testing::Test {
  protected:
    ReadyScanTest()
        : instance_(small_geometry()),
          dispatch_{instance_.dispatch(0), instance_.dispatch(1)},
          returns_(instance_.returns(kRank)),
          placement_(test_placement(kLayers, 2)),
          scan_(make_scan()) {}

    ReadyScan make_scan(RouterPlacement router = RouterPlacement::kAttention) {
        return {*returns_, placement_, router};
    }
    // Publishes a descriptor with one id in slot (token 1, k 2), the others masked.
    void publish(uint32_t session, uint32_t m, int32_t layer_id, int32_t id, int32_t round) {
        std::vector<int32_t> ids(9, kMaskedId);
        ids[5] = id;
        dispatch_[session]->publish(kRank, m, layer_id, ids, round);
    }
    int32_t acknowledged(uint32_t session, uint32_t m) {
        return *instance_.acknowledged(kRank, session, m);
    }
    int32_t result_flag(uint32_t session, uint32_t m) {
        return *instance_.result_flag(session, m, 1, 2);
    }
    const ScheduleContext& context() { return returns_->own_control().context(); }
    std::span<const int32_t> buffer(uint64_t offset, size_t count) {
        const std::byte* base = returns_->own_control().base();
        return {static_cast<const int32_t*>(static_cast<const void*>(base + offset)), count};
    }

    LocalInstance instance_;
    std::array<std::unique_ptr<ShmDispatchTransport>, 2> dispatch_;
    std::unique_ptr<ShmReturnTransport> returns_;
    ExpertPlacement placement_;
    ReadyScan scan_;
};

TEST_F(ReadyScanTest, ListsDescriptorsInTheOrderOfFirstReadiness) {
    EXPECT_TRUE(scan_.scan(10).empty());
    EXPECT_FALSE(scan_.has_new(Order::kSeqCst));
    publish(1, 1, 2, 3, 7);
    EXPECT_TRUE(scan_.has_new(Order::kSeqCst));
    scan_.scan(20);
    EXPECT_FALSE(scan_.has_new(Order::kSeqCst)) << "it is listed now";
    publish(0, 0, 1, 3, 8);
    const auto ready = scan_.scan(30);
    ASSERT_EQ(ready.size(), 2u);
    EXPECT_EQ(ready[0].session, 1u);
    EXPECT_EQ(ready[0].micro_batch, 1u);
    EXPECT_EQ(ready[0].layer_id, 2);
    EXPECT_EQ(ready[0].round, 7);
    EXPECT_EQ(ready[0].ready_us, 20u);
    EXPECT_EQ(ready[1].session, 0u);
    EXPECT_LT(ready[0].order, ready[1].order);
}

// Goal: a session that publishes to a rank without a row for it does not wait for a pass.
TEST_F(ReadyScanTest, AcknowledgesADescriptorWithoutARowAtOnce) {
    publish(0, 1, 2, kMaskedId, 7);
    publish(1, 0, 2, 3, 8);
    EXPECT_TRUE(scan_.has_new(Order::kSeqCst));
    const auto ready = scan_.scan(10);
    ASSERT_EQ(ready.size(), 1u);
    EXPECT_EQ(ready[0].session, 1u);
    EXPECT_EQ(acknowledged(0, 1), 7);
    EXPECT_EQ(acknowledged(1, 0), 0);
    EXPECT_FALSE(scan_.has_new(Order::kSeqCst));
    publish(0, 1, 2, 3, 9);
    EXPECT_EQ(scan_.scan(20).size(), 2u) << "its next round is listed as any other";
}

TEST_F(ReadyScanTest, FillsTheOutputBuffersOfTheContext) {
    publish(1, 0, 2, 3, 7);
    publish(0, 1, 1, 4, 8);
    scan_.take(scan_.scan(0));
    const ScheduleContext::FfnArea& ffn = context().ffn;
    EXPECT_EQ(ffn.out_num, 2u);
    // One scan met both: ascending session.
    EXPECT_THAT(buffer(ffn.layer_ids_buf, 2), ::testing::ElementsAre(1, 2));
    EXPECT_THAT(buffer(ffn.session_ids_buf, 2), ::testing::ElementsAre(0, 1));
    EXPECT_THAT(buffer(ffn.micro_batch_ids_buf, 2), ::testing::ElementsAre(1, 0));
    const std::span<const int32_t> ids = buffer(ffn.expert_ids_buf, 18);
    for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(ids[i], i == 5 ? 4 : i == 14 ? 3 : kMaskedId) << i;
    }
    EXPECT_EQ(acknowledged(0, 1), 0) << "nothing is acknowledged before its results";
    scan_.put_result(0, 1, 1, 2, std::vector<std::byte>(512));
    EXPECT_EQ(result_flag(0, 1), 8);
    scan_.acknowledge_taken();
    EXPECT_EQ(context().ffn.out_num, 0u);
    EXPECT_EQ(acknowledged(0, 1), 8);
    EXPECT_EQ(acknowledged(1, 0), 7);
    EXPECT_TRUE(scan_.scan(1).empty());
}

TEST_F(ReadyScanTest, KeepsWhatWasNotTaken) {
    publish(0, 0, 0, 0, 1);
    publish(0, 1, 0, 0, 1);
    const auto ready = scan_.scan(0);
    ASSERT_EQ(ready.size(), 2u);
    scan_.take(ready.first(1));
    scan_.acknowledge_taken();
    ASSERT_EQ(scan_.scan(0).size(), 1u);
    EXPECT_EQ(scan_.scan(0)[0].micro_batch, 1u);
    publish(0, 0, 0, 0, 2);
    EXPECT_EQ(scan_.scan(0).size(), 2u);
}

TEST_F(ReadyScanTest, MasksIdsThatTheRankDoesNotHold) {
    for (const int32_t id : {8, 16, -1, -2147483647, kMaskedId - 1}) {
        SCOPED_TRACE(id);
        const uint64_t before = scan_.errors().num_bad_ids;
        publish(0, 0, 0, id, scan_.errors().num_bad_ids == 0 ? 1 : acknowledged(0, 0) + 1);
        scan_.take(scan_.scan(0));
        EXPECT_EQ(buffer(context().ffn.expert_ids_buf, 9)[5], kMaskedId);
        scan_.acknowledge_taken();
        EXPECT_EQ(scan_.errors().num_bad_ids, before + 1);
        EXPECT_EQ(result_flag(0, 0), 0) << "the slot may belong to another rank";
    }
}

// R3: the acknowledgement belongs to the descriptor. A bad one is refused and acknowledged, and
// nobody else suffers.
TEST_F(ReadyScanTest, RefusesADescriptorWithABadLayer) {
    for (const int32_t layer_id : {-1, static_cast<int32_t>(kLayers), 2147483647}) {
        SCOPED_TRACE(layer_id);
        const int32_t round = acknowledged(0, 0) + 1;
        publish(0, 0, layer_id, 3, round);
        publish(1, 0, 1, 3, round);
        const auto ready = scan_.scan(0);
        ASSERT_EQ(ready.size(), 1u);
        EXPECT_EQ(ready[0].session, 1u);
        EXPECT_EQ(acknowledged(0, 0), round);
        EXPECT_EQ(result_flag(0, 0), refused_mark(round));
        scan_.take(ready);
        scan_.acknowledge_taken();
    }
    EXPECT_EQ(scan_.errors().num_bad_layers, 3u);
}

TEST_F(ReadyScanTest, AcknowledgesAFlagThatIsNoRoundNumberWithoutExecutingIt) {
    *instance_.descriptor(kRank, 0, 0) = -7;
    EXPECT_TRUE(scan_.scan(0).empty());
    EXPECT_EQ(acknowledged(0, 0), -7);
    EXPECT_EQ(scan_.errors().num_bad_flags, 1u);
    EXPECT_FALSE(scan_.has_new(Order::kSeqCst));
}

// Goal: shared words are read once (R2). Method: layer and ids change after they were read.
// Oracle: the buffers keep the first values.
TEST_F(ReadyScanTest, UsesItsPrivateCopyOfLayerAndIds) {
    publish(0, 0, 2, 3, 1);
    scan_.scan(0);
    instance_.descriptor(kRank, 0, 0)[1] = 99;
    scan_.take(scan_.scan(0));
    instance_.descriptor(kRank, 0, 0)[2 + 5] = 99;
    EXPECT_EQ(buffer(context().ffn.layer_ids_buf, 1)[0], 2);
    EXPECT_EQ(buffer(context().ffn.expert_ids_buf, 9)[5], 3);
    EXPECT_EQ(scan_.taken()[0].layer_id, 2);
}

// A flag that changes before it is acknowledged breaks R4. It costs the session, not the worker.
TEST_F(ReadyScanTest, SurvivesASessionThatPublishesTwice) {
    publish(0, 0, 2, 3, 1);
    scan_.scan(0);
    publish(0, 0, 1, 4, 2);
    EXPECT_EQ(scan_.scan(0).size(), 1u);
    scan_.take(scan_.scan(0));
    scan_.acknowledge_taken();
    ASSERT_EQ(scan_.scan(0).size(), 1u);
    EXPECT_EQ(scan_.scan(0)[0].round, 2);
}

TEST_F(ReadyScanTest, FindsAgainWhatItsPredecessorDidNotAcknowledge) {
    publish(0, 0, 2, 3, 1);
    publish(0, 1, 2, 3, 1);
    const auto ready = scan_.scan(0);
    scan_.take(ready.first(1));
    scan_.put_result(0, 0, 1, 2, std::vector<std::byte>(512, std::byte{1}));
    ReadyScan successor = make_scan();
    EXPECT_EQ(context().ffn.out_num, 0u);
    EXPECT_EQ(successor.scan(0).size(), 1u);
    ASSERT_EQ(successor.suspects().size(), 1u) << "its execution was started";
    successor.take(successor.suspects());
    successor.acknowledge_taken();
    EXPECT_EQ(make_scan().scan(0).size(), 1u) << "acknowledgements are kept";
}

// R11. Goal: a descriptor that kills its worker ends after three kills and takes no other along.
// Method: workers that die in the pass of both sessions, then whenever they execute session 0's.
TEST_F(ReadyScanTest, RefusesADescriptorThatKilledThreeWorkersAndSparesTheOther) {
    publish(0, 0, 2, 3, 5);
    publish(1, 0, 2, 3, 5);
    scan_.take(scan_.scan(0));
    for (int num_deaths = 1; num_deaths < 3; ++num_deaths) {
        SCOPED_TRACE(num_deaths);
        ReadyScan successor = make_scan();
        EXPECT_TRUE(successor.scan(0).empty()) << "a suspect among the others";
        if (num_deaths == 1) {
            ASSERT_EQ(successor.suspects().size(), 2u);
            successor.take(successor.suspects().last(1));
            EXPECT_EQ(successor.taken()[0].session, 1u);
            successor.put_result(1, 0, 1, 2, std::vector<std::byte>(512, std::byte{1}));
            successor.acknowledge_taken();
        }
        ASSERT_EQ(successor.suspects().size(), 1u);
        successor.take(successor.suspects());
        EXPECT_EQ(acknowledged(0, 0), 0);
    }
    ReadyScan last = make_scan();
    EXPECT_TRUE(last.scan(0).empty());
    EXPECT_TRUE(last.suspects().empty());
    EXPECT_EQ(last.errors().num_deadly, 1u);
    EXPECT_EQ(acknowledged(0, 0), 5);
    EXPECT_EQ(result_flag(0, 0), refused_mark(5));
    EXPECT_EQ(result_flag(1, 0), 5);
    publish(0, 0, 2, 3, 6);
    EXPECT_EQ(last.scan(0).size(), 1u) << "the lane's next descriptor is none";
}

// R11. Goal: a refusal is of one descriptor, and not of its number, which comes again over UCX when
// both processes are new. Method: a refused round; then words as a new process has them, and a new
// session's round of that number. Oracle: it is executed.
TEST_F(ReadyScanTest, RefusesNoOtherDescriptorOfTheSameNumber) {
    publish(0, 0, 2, 3, 5);
    for (uint32_t num_deaths = 0; num_deaths < ExecutionLog::kDeadly; ++num_deaths) {
        ReadyScan worker = make_scan();
        worker.scan(0);
        worker.take(num_deaths == 0 ? worker.scan(0) : worker.suspects());
    }
    ReadyScan refuses = make_scan();
    EXPECT_TRUE(refuses.scan(0).empty());
    ASSERT_EQ(refuses.errors().num_deadly, 1u);
    *instance_.acknowledged(kRank, 0, 0) = 0;
    publish(0, 0, 2, 3, 5);
    ReadyScan successor = make_scan();
    EXPECT_EQ(successor.scan(0).size(), 1u);
    EXPECT_TRUE(successor.suspects().empty());
    EXPECT_EQ(successor.errors().num_deadly, 0u);
}

// A kill between passes, or after the results, suspects nobody.
TEST_F(ReadyScanTest, CountsOnlyExecutionsWithoutAnEnd) {
    for (int32_t round = 1; round <= 4; ++round) {
        publish(0, 0, 2, 3, round);
        ReadyScan worker = make_scan();
        ASSERT_EQ(worker.scan(0).size(), 1u);
        ASSERT_TRUE(worker.suspects().empty());
        worker.take(worker.scan(0));
        worker.acknowledge_taken();
    }
    EXPECT_EQ(make_scan().errors().num_deadly, 0u);
}

// Only a scan whose rank routes takes offers, and only in slot 0 of a token.
TEST_F(ReadyScanTest, LeavesOffersOnlyWhereTheRankRoutes) {
    std::vector<int32_t> ids(9, kMaskedId);
    ids[3] = kOfferedId;  // Token 1, slot 0.
    ids[4] = kOfferedId;
    ids[5] = 2;
    dispatch_[0]->publish(kRank, 0, 1, ids, 1);
    scan_.take(scan_.scan(0));
    EXPECT_EQ(scan_.ids(0)[3], kMaskedId);
    scan_.acknowledge_taken();

    ReadyScan routing = make_scan(RouterPlacement::kFfn);
    ids[3] = offered_id(6);  // Without ranks 1 and 2.
    dispatch_[0]->publish(kRank, 0, 1, ids, 2);
    routing.take(routing.scan(0));
    EXPECT_EQ(routing.ids(0)[3], offered_id(6));
    EXPECT_EQ(routing.ids(0)[4], kMaskedId) << "not in slot 0";
    EXPECT_EQ(routing.ids(0)[5], 2);
    EXPECT_EQ(routing.errors().num_bad_ids, 1u);
}

// R11: which slots of an offered token are this rank's, only the gate can tell, and that does not
// run. The refusal stands in the acknowledgement; a successor takes it for one.
TEST_F(ReadyScanTest, RefusesOfferedTokensInItsAcknowledgement) {
    ReadyScan routing = make_scan(RouterPlacement::kFfn);
    std::vector<int32_t> ids(9, kMaskedId);
    ids[3] = kOfferedId;
    ids[5] = 2;
    dispatch_[0]->publish(kRank, 0, kLayers, ids, 7);
    EXPECT_TRUE(routing.scan(0).empty()) << "there is no such layer";
    EXPECT_EQ(acknowledged(0, 0), refused_mark(7));
    EXPECT_EQ(*instance_.result_flag(0, 0, 1, 0), 0) << "maybe another rank's";
    EXPECT_EQ(result_flag(0, 0), refused_mark(7)) << "the session asked this rank for slot 2";
    EXPECT_TRUE(routing.scan(0).empty());
    EXPECT_TRUE(make_scan(RouterPlacement::kFfn).scan(0).empty());
}

// Goal: no bytes of a session reach an index, or cost another session its round. Method: session 1
// fills its descriptors with random and extreme words between any two steps of the worker, session
// 0 dispatches as it should. Oracle: every buffer holds layers and ids that the rank serves, and
// session 0 gets each of its rounds acknowledged.
TEST_F(ReadyScanTest, SurvivesAnyBytesOfASession) {
    std::mt19937 random(5);
    const auto spoil = [&] {
        constexpr std::array<int32_t, 8> kExtremes = {
            0, 1, -1, 3, 7, kMaskedId, -2147483647 - 1, 2147483646};
        for (uint32_t m = 0; m < 2; ++m) {
            int32_t* descriptor = instance_.descriptor(kRank, 1, m);
            for (int word = 0; word < 11; ++word) {
                if (random() % 3 == 0) continue;
                descriptor[word] =
                    random() % 4 == 0 ? static_cast<int32_t>(random()) : kExtremes[random() % 8];
            }
        }
    };
    uint64_t num_spoilt_taken = 0;
    for (int32_t round = 1; round <= 3000; ++round) {
        spoil();
        publish(0, 0, round % 4, 3, round);
        while (acknowledged(0, 0) != round) {
            const auto ready = scan_.scan(0);
            spoil();
            std::vector<ReadyDescriptor> pass;
            for (const ReadyDescriptor& descriptor : ready) {
                const bool is_double = !pass.empty() && pass.back().session == descriptor.session;
                if (pass.empty() || !is_double) pass.push_back(descriptor);
            }
            pass.resize(std::min<size_t>(pass.size(), 1 + random() % 2));
            scan_.take(pass);
            const ScheduleContext::FfnArea& ffn = context().ffn;
            for (size_t i = 0; i < pass.size(); ++i) {
                const int32_t layer_id = buffer(ffn.layer_ids_buf, 2)[i];
                for (const int32_t id : buffer(ffn.expert_ids_buf, 18).subspan(i * 9, 9)) {
                    ASSERT_TRUE(id == kMaskedId || placement_.holds(kRank, layer_id, id));
                }
                num_spoilt_taken += pass[i].session;
            }
            spoil();
            scan_.acknowledge_taken();
        }
    }
    EXPECT_GT(num_spoilt_taken, 100u);
    EXPECT_GT(scan_.errors().num_bad_flags, 100u);
    EXPECT_GT(scan_.errors().num_bad_layers, 100u);
    EXPECT_GT(scan_.errors().num_bad_ids, 100u);
}

TEST_F(ReadyScanTest, TakesOneDescriptorOfASessionAtATime) {
    publish(0, 0, 0, 0, 1);
    publish(0, 1, 0, 0, 1);
    const auto ready = scan_.scan(0);
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(scan_.take(ready), "its session is taken twice");
}

}  // namespace
}  // namespace afd::schedule
