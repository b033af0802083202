// SPDX-License-Identifier: Apache-2.0
//
// A gateway that leaves what it has to another. Goal: what was accepted ends here, the rest goes
// whole and once. Method: sessions in memory and sockets, scripted workers, an heir that notes what
// it is given, and a second gateway in its place. Oracle: what was given, and what clients read.
#include "daemon/gateway/departure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/gateway/noting_heir.h"
#include "tests/daemon/gateway/resumable_requests_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DepartureTest : public ResumableRequestsTest {
  protected:
    // So many turns that whatever is to happen in one has.
    void turn() {
        int num_turns = 0;
        NextTurn next(loop_, [&] { ++num_turns; });
        for (int i = 1; i <= 5; ++i) {
            next.ask();
            ASSERT_TRUE(run_until(loop_, [&] { return num_turns == i; }));
        }
    }

    NotingHeir heir_;
};

TEST_F(DepartureTest, AnIdleConnectionGoesAtOnceAndABusyOneAtTheEndOfItsRequest) {
    open("idle");
    MemorySession& busy = open("busy");
    const uint64_t id = start(busy, 1, 6, 0);
    gateway_->leave_to(heir_);
    turn();
    ASSERT_EQ(heir_.connections.size(), 1u);
    EXPECT_EQ(heir_.connections[0].unread, "idle");
    EXPECT_FALSE(instance_.has_departed);
    EXPECT_EQ(gateway_->remaining().num_requests(), 1u);
    EXPECT_EQ(gateway_->remaining().num_connections(), 1u);
    say(id, "abcdef");
    EXPECT_EQ(busy.text(1), "abcdef");
    end(id);
    EXPECT_TRUE(busy.last(1)->has_finished());
    turn();
    ASSERT_EQ(heir_.connections.size(), 2u);
    EXPECT_EQ(heir_.connections[1].unread, "busy");
    EXPECT_TRUE(instance_.has_departed);
    EXPECT_EQ(gateway_->num_connections(), 0u);
}

TEST_F(DepartureTest, OneThatCannotLeaveStaysUntilItCan) {
    MemorySession& session = open();
    session.cannot_leave = true;
    gateway_->leave_to(heir_);
    turn();
    EXPECT_THAT(heir_.connections, IsEmpty());
    EXPECT_FALSE(instance_.has_departed);
    session.cannot_leave = false;
    session.read(0);  // Progress of any kind.
    turn();
    EXPECT_EQ(heir_.connections.size(), 1u);
}

TEST_F(DepartureTest, WithoutItsHeirItServesOn) {
    MemorySession& session = open();
    const uint64_t id = start(session, 1, 6, 0);
    gateway_->leave_to(heir_);
    EXPECT_TRUE(gateway_->is_leaving());
    gateway_->stay();
    EXPECT_FALSE(gateway_->is_leaving());
    EXPECT_EQ(session.num_stays, 1);
    say(id, "ab");
    end(id);
    turn();
    EXPECT_THAT(heir_.connections, IsEmpty());
    EXPECT_FALSE(instance_.has_departed);
}

// Goal: a Resume goes on with the heir exactly where it would have here. Method: a request that
// ended here, given to a second gateway. Oracle: what a session of that one reads.
TEST_F(DepartureTest, AResumableRequestThatIsOverGoesWithAllThatWasSaid) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 4);
    const std::string name = resume_id(first, 1);
    say(id, "ab");
    first.close();
    gateway_->leave_to(heir_);
    turn();
    EXPECT_THAT(heir_.streams, IsEmpty()) << "it runs";
    EXPECT_THAT(gateway_->remaining().stream_ids(), ElementsAre(name));
    say(id, "cd");
    end(id);
    turn();
    ASSERT_EQ(heir_.streams.size(), 1u);
    EXPECT_TRUE(instance_.has_departed);
    const HandedStream& stream = heir_.streams[0];
    EXPECT_EQ(stream.id, name);
    EXPECT_EQ(stream.account, "account of one");
    EXPECT_EQ(stream.chunks.size(), 4u);
    EXPECT_LE(stream.grace_ms, 60'000u);
    EXPECT_GT(stream.grace_ms, 50'000u);
    EXPECT_TRUE(stream.is_unheard);

    ServedModel model;
    model.vocab_size = kByteVocabulary;
    model.context_length = 1 << 20;
    model.tokenizer = &tokenizer_;
    ScriptedInstance other;
    Gateway next(loop_, config_, model, std::vector<TraceSource>(), other, other);
    handover::Remaining remaining;
    remaining.add_stream_ids(name);
    next.set_elsewhere(remaining);
    MemorySession& second = MemorySession::open(next, "one");
    resume(second, 7, name, 1);
    EXPECT_THAT(second.last(7)->error().message(),
                HasSubstr("still runs with the afdd before this one"));
    next.adopt(stream, nullptr);
    EXPECT_EQ(next.status().num_detached(), 1u);
    MemorySession& stranger = MemorySession::open(next, "another");
    resume(stranger, 8, name, 0);
    EXPECT_EQ(error_code(stranger, 8), code(Code::kNotFound));
    resume(second, 9, name, 1);
    EXPECT_EQ(second.text(9), "bcd");
    EXPECT_EQ(second.last(9)->finished().num_output_tokens(), 4u);
    resume(second, 10, name, 4);
    EXPECT_EQ(second.text(10), "");
    EXPECT_TRUE(second.last(10)->has_finished());
    resume(second, 11, name, 6);
    EXPECT_THAT(second.last(11)->error().message(), HasSubstr("the request has made 4 so far"));
}

// A drain of the heir is over when the one before it has ended.
TEST_F(DepartureTest, ADrainWaitsForTheAfddBefore) {
    instance_.predecessor = true;
    gateway_->drain();
    turn();
    EXPECT_EQ(instance_.num_drains, 0);
    instance_.predecessor = false;
    gateway_->on_predecessor_gone();
    EXPECT_EQ(instance_.num_drains, 1);
}

}  // namespace
}  // namespace afd::daemon
