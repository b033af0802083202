// SPDX-License-Identifier: Apache-2.0
//
// Requests that attention workers die of. Goal: they end, after the deaths that the header names,
// and nobody else does. Method: sessions in memory and scripted workers, which die of what the test
// says. Oracle: which worker is given what and for how many tokens, and what clients hear.
#include "daemon/gateway/flight/suspects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/daemon/gateway/gateway_fixture.h"
#include "tests/daemon/gateway/memory_session.h"
#include "tests/daemon/gateway/noting_heir.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A session's requests have the ids under which the workers know them: 1, 2, 3, ...
class SuspectsTest : public GatewayTest {
  protected:
    void ask(uint64_t id, uint32_t max_tokens = 4) {
        client_.ask(generate(id, "abc", max_tokens));
        ASSERT_TRUE(client_.last(id)->has_accepted()) << client_.last(id)->DebugString();
    }

    void be_ready(uint32_t session) { gateway_->on_attention_ready(session, 1024); }
    void crash(uint32_t session) {
        gateway_->on_attention_gone(session,
                                    {.is_fault = true,
                                     .how = "attention worker " + std::to_string(session) +
                                            " killed by signal 6 (Aborted)"});
    }
    void crash_and_return(uint32_t session) {
        crash(session);
        be_ready(session);
    }

    // What the workers were given since the last look: "0: 7" (request 7 to worker 0), "1: 7 alone"
    // (for one token), "0: no 7" (it is to stop).
    std::vector<std::string> given() {
        std::vector<std::string> all;
        while (instance_.has_next()) {
            const auto [session, message] = instance_.next();
            std::string text = std::to_string(session) + ": ";
            if (message.has_cancel()) {
                text += "no " + std::to_string(message.cancel().sequence_id());
            } else {
                const control::Admit& admit = message.admit();
                text += std::to_string(admit.sequence_id());
                const auto num_tokens = static_cast<uint32_t>(admit.tokens_size());
                if (admit.max_total_tokens() == num_tokens + 1) text += " alone";
            }
            all.push_back(text);
        }
        return all;
    }

    // A trial that comes to its end.
    void say_one(uint32_t session, uint64_t id, char token) {
        say_text(session, id, std::string(1, token));
        say_end(session, id);
    }

    uint64_t num_deadly() const { return gateway_->requests().num_deadly; }

    MemorySession& client_ = MemorySession::open(*gateway_, "one");
};

// Three requests of a worker; what it dies of is the second.
TEST_F(SuspectsTest, WhatKillsEndsAndWhatRanBesideItGoesOn) {
    be_ready(0);
    for (const uint64_t id : {1, 2, 3}) ask(id);
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 2", "0: 3"));
    say_text(0, 1, "p");
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 2", "0: 3")) << "the first time may be chance";
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1 alone"));
    say_text(0, 1, "q");
    EXPECT_THAT(given(), IsEmpty()) << "its worker has not let go of it";
    say_end(0, 1);
    EXPECT_THAT(given(), ElementsAre("0: 2 alone"));
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 2 alone")) << "the worker had the first one before";
    EXPECT_FALSE(client_.last(2)->has_error());
    crash(0);
    EXPECT_EQ(client_.last(2)->error().code(), static_cast<uint32_t>(Code::kInternal));
    EXPECT_EQ(client_.last(2)->error().message(),
              "attention workers died 4 times in a row while they worked on this request, the last "
              "one on nothing else (attention worker 0 killed by signal 6 (Aborted)): it ends with "
              "the tokens that it has, and would do the same again. The log of the worker says "
              "what it died of: keep it and the prompt, they show a bug");
    EXPECT_EQ(instance_.num_excuses, 1);
    be_ready(0);
    EXPECT_THAT(given(), ElementsAre("0: 3 alone"));
    say_one(0, 3, 'x');
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 3"));
    say_text(0, 1, "rs");
    say_end(0, 1);
    say_text(0, 3, "yzw");
    say_end(0, 3);
    EXPECT_TRUE(client_.last(1)->has_finished());
    EXPECT_TRUE(client_.last(3)->has_finished());
    EXPECT_EQ(client_.text(1), "pqrs");
    EXPECT_EQ(client_.text(3), "xyzw");
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(gateway_->num_failed(), 1U);
    EXPECT_EQ(num_deadly(), 1U);
}

TEST_F(SuspectsTest, OneThatIsAloneEndsWithTheThirdDeathAndKeepsItsTokens) {
    be_ready(0);
    ask(1, 9);
    say_text(0, 1, "pq");
    crash_and_return(0);
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 1", "0: 1 alone"));
    crash(0);
    EXPECT_THAT(client_.last(1)->error().message(), HasSubstr("died 3 times in a row"));
    EXPECT_EQ(client_.text(1), "pq");
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(gateway_->requests().num_replays, 2U);
}

TEST_F(SuspectsTest, ATokenTakesTheDeathsBack) {
    be_ready(0);
    ask(1, 100);
    for (int i = 0; i < 20; ++i) {
        say_text(0, 1, "p");
        crash_and_return(0);
        EXPECT_THAT(given(), testing::Each("0: 1")) << i;
    }
    // Also in a trial, in which the worker dies behind the token.
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1 alone"));
    say_text(0, 1, "q");
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1"));
    EXPECT_EQ(client_.text(1), std::string(20, 'p') + "q");
    EXPECT_FALSE(client_.last(1)->has_error());
    EXPECT_EQ(num_deadly(), 0U);
}

// What somebody kills is innocent, however often and fast; and it clears nobody either.
TEST_F(SuspectsTest, KillsFromOutsideCountNeitherWay) {
    be_ready(0);
    ask(1);
    ask(2);
    const auto kill_and_return = [&] {
        gateway_->on_attention_gone(0, {.how = "attention worker 0 killed by signal 9 (Killed)"});
        be_ready(0);
    };
    EXPECT_EQ(given().size(), 2U);
    for (int i = 0; i < 20; ++i) {
        kill_and_return();
        EXPECT_THAT(given(), ElementsAre("0: 1", "0: 2")) << i;
    }
    crash_and_return(0);
    kill_and_return();
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 2", "0: 1", "0: 2", "0: 1 alone"));
    for (int i = 0; i < 20; ++i) {
        kill_and_return();
        EXPECT_THAT(given(), ElementsAre("0: 1 alone")) << i;
    }
    say_one(0, 1, 'x');
    EXPECT_THAT(given(), ElementsAre("0: 2 alone"));
    say_one(0, 2, 'x');
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 2"));
    EXPECT_EQ(gateway_->num_failed(), 0U);
}

// Goal: who is no suspect is served meanwhile, and two that kill both end. Method: 1 and 3 kill
// two workers, one after the other.
TEST_F(SuspectsTest, OthersAreServedByOtherWorkersWhileTwoAreTried) {
    be_ready(0);
    be_ready(1);
    for (const uint64_t id : {1, 2, 3}) ask(id);
    EXPECT_THAT(given(), ElementsAre("0: 1", "1: 2", "0: 3"));
    crash(0);
    EXPECT_THAT(given(), ElementsAre("1: 1", "1: 3"));
    crash(1);
    be_ready(0);
    EXPECT_THAT(given(), ElementsAre("0: 1 alone")) << "the second waits, it saw one death";
    be_ready(1);
    EXPECT_THAT(given(), ElementsAre("1: 2"));
    ask(4);
    EXPECT_THAT(given(), ElementsAre("1: 4"));
    crash(0);
    EXPECT_THAT(client_.last(1)->error().message(), HasSubstr("died 3 times in a row"));
    be_ready(0);
    EXPECT_THAT(given(), ElementsAre("0: 3 alone"));
    say_text(1, 2, "wxyz");
    say_end(1, 2);
    crash(0);
    EXPECT_THAT(client_.last(3)->error().message(), HasSubstr("died 3 times in a row"));
    say_text(1, 4, "wxyz");
    say_end(1, 4);
    EXPECT_EQ(client_.text(2) + client_.text(4), "wxyzwxyz");
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(num_deadly(), 2U);
}

// A worker that dies of everything says nothing about what it is given, if there is another.
TEST_F(SuspectsTest, OneThatOnlyOneOfSeveralWorkersDiedOfIsTriedOnAnother) {
    be_ready(0);
    ask(1);
    crash_and_return(0);
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("0: 1", "0: 1", "0: 1 alone"));
    be_ready(1);
    crash_and_return(0);
    EXPECT_THAT(given(), ElementsAre("1: 1 alone"));
    say_one(1, 1, 'x');
    EXPECT_EQ(given().size(), 1U);
    EXPECT_EQ(gateway_->num_failed(), 0U);
}

TEST_F(SuspectsTest, ASuspectCanBeCancelledWhileItWaitsAndWhileItIsTried) {
    be_ready(0);
    ask(1);
    ask(2);
    crash_and_return(0);
    crash_and_return(0);
    EXPECT_THAT(given(), testing::Contains("0: 1 alone"));
    client::Request cancel;
    cancel.set_request_id(10);
    cancel.mutable_cancel()->set_target(2);
    client_.ask(cancel);
    EXPECT_EQ(client_.last(2)->finished().reason(), client::CANCELLED);
    cancel.set_request_id(11);
    cancel.mutable_cancel()->set_target(1);
    client_.ask(cancel);
    EXPECT_THAT(given(), ElementsAre("0: no 1"));
    ask(3);
    EXPECT_THAT(given(), IsEmpty()) << "nobody joins a suspect";
    say_end(0, 1, Code::kCancelled);
    EXPECT_EQ(client_.last(1)->finished().reason(), client::CANCELLED);
    EXPECT_THAT(given(), ElementsAre("0: 3"));
}

// What ends with its next token ends, and what its worker ends without one is no trial.
TEST_F(SuspectsTest, ATrialMayBeTheEndOfTheRequest) {
    be_ready(0);
    ask(1, 1);
    ask(2);
    crash_and_return(0);
    crash_and_return(0);
    say_one(0, 1, 'x');
    EXPECT_TRUE(client_.last(1)->has_finished());
    EXPECT_THAT(given(), testing::Contains("0: 2 alone"));
    say_end(0, 2);
    EXPECT_THAT(client_.last(2)->error().message(), HasSubstr("before its last token"));
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(num_deadly(), 0U);
}

TEST_F(SuspectsTest, ADrainWaitsForTheVerdict) {
    be_ready(0);
    ask(1);
    ask(2);
    crash_and_return(0);
    gateway_->drain();
    crash_and_return(0);
    say_one(0, 1, 'x');
    crash_and_return(0);
    crash_and_return(0);
    EXPECT_TRUE(client_.last(2)->has_error());
    EXPECT_EQ(instance_.num_drains, 0);
    say_text(0, 1, "yzw");
    say_end(0, 1);
    EXPECT_EQ(instance_.num_drains, 1);
}

// The deaths are the request's, whatever workers there are.
TEST_F(SuspectsTest, ASuspectIsOneBehindAResizeToo) {
    be_ready(0);
    ask(1);
    ask(2);
    crash_and_return(0);
    crash(0);
    given();
    gateway_->stand_still();
    gateway_->go_on(3, {});
    be_ready(2);
    EXPECT_THAT(given(), ElementsAre("2: 1 alone"));
    be_ready(1);
    say_one(2, 1, 'x');
    EXPECT_THAT(given(), ElementsAre("1: 2 alone", "2: 1")) << "a new worker is the better test";
    crash(1);
    EXPECT_THAT(client_.last(2)->error().message(), HasSubstr("attention worker 1 killed by"));
}

// It ends here, and with the error its connection is free to go.
TEST_F(SuspectsTest, AnUpgradeLeavesASuspectToTheAfddThatHasIt) {
    be_ready(0);
    ask(1);
    crash_and_return(0);
    crash_and_return(0);
    NotingHeir heir;
    gateway_->leave_to(heir);
    EXPECT_EQ(gateway_->remaining().num_requests(), 1U);
    crash(0);
    EXPECT_TRUE(client_.last(1)->has_error());
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_departed; }));
    EXPECT_EQ(heir.connections.size(), 1U);
}

// Workers that die of whatever they get are not excused for ever.
TEST_F(SuspectsTest, DeathsAreExcusedAgainOnlyWhenSomebodyWasServed) {
    be_ready(0);
    const auto ask_and_crash = [&](uint64_t id) {
        ask(id);
        for (int i = 0; i < 3; ++i) crash_and_return(0);
        EXPECT_TRUE(client_.last(id)->has_error());
    };
    ask_and_crash(1);
    EXPECT_EQ(instance_.num_excuses, 1);
    ask_and_crash(2);
    EXPECT_EQ(instance_.num_excuses, 1);
    ask(3);
    say_text(0, 3, "wxyz");
    say_end(0, 3);
    // The process has served: its death is not the last one.
    ask(4);
    for (int i = 0; i < 3; ++i) crash_and_return(0);
    EXPECT_TRUE(client_.last(4)->has_error());
    EXPECT_EQ(instance_.num_excuses, 2);
    EXPECT_EQ(num_deadly(), 3U);
}

}  // namespace
}  // namespace afd::daemon
