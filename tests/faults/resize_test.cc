// SPDX-License-Identifier: Apache-2.0
//
// Other numbers of workers while an instance serves: up and down, in either order, with workers
// that are killed meanwhile and clients that go away.

#include <signal.h>

#include <iterator>
#include <random>
#include <thread>

#include "tests/faults/resize_fixture.h"
#include "tests/faults/steady_load.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/footprint.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class ResizeWithRoutersAtTheExperts : public Resize {
  protected:
    ResizeWithRoutersAtTheExperts() : Resize("ffn") {}
};

// Whose workers may be killed as often as a test likes.
class ResizeWithKills : public Resize {
  protected:
    ResizeWithKills() : Resize("attention", "1000") {}
};

struct Size {
    int attention = 0;
    int ffn = 0;
};
// Up and down in each role and in both; 4 FFN workers have four experts each.
constexpr Size kSizes[] = {{2, 1}, {2, 3}, {1, 4}, {3, 2}, {2, 2}, {1, 1}};

TEST_F(Resize, UpAndDownUnderLoadChangesNoBit) {
    // Once before, so that what is made at the first time is made.
    expect_resized(resize(1, 2), 1, 2);
    expect_resized(resize(1, 1), 1, 1);
    const std::vector<std::string> segments = instance_.segments();
    const Footprint before = footprint_of(instance_.pid());
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (const Size& size : kSizes) {
        const Outcome outcome = resize(size.attention, size.ffn);
        expect_resized(outcome, size.attention, size.ffn);
        EXPECT_THAT(outcome.output, HasSubstr("starting " + std::to_string(size.attention)));
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    const client::Status status = instance_.status();
    EXPECT_EQ(status.num_failed(), 0U);
    EXPECT_EQ(status.state(), "ready");
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.segments().size(), segments.size());
    EXPECT_NE(instance_.segments(), segments) << "they are made anew";
    const Footprint after = footprint_of(instance_.pid());
    EXPECT_LE(after.num_descriptors, before.num_descriptors + 2) << descriptors_of(instance_.pid());
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(ResizeWithRoutersAtTheExperts, UpAndDownUnderLoadChangesNoBit) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (const Size& size : kSizes) {
        expect_resized(resize(size.attention, size.ffn), size.attention, size.ffn);
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(Resize, StopFirstEndsTheOldOnesBeforeAndLosesNothing) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (const Size& size : {Size{2, 2}, Size{1, 3}, Size{1, 1}}) {
        const Outcome outcome = resize(size.attention, size.ffn, {"--stop-first"});
        expect_resized(outcome, size.attention, size.ffn);
        const size_t ending = outcome.output.find("ending ");
        EXPECT_LT(ending, outcome.output.find("starting ")) << outcome.output;
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

// A kill at any moment of a resize, of a worker that serves or of one that is to.
TEST_F(ResizeWithKills, AtRandomMomentsOfItChangeNoBit) {
    std::minstd_rand random(20261124);
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    for (int i = 0; i < 8; ++i) {
        const Size size = kSizes[static_cast<size_t>(i) % std::size(kSizes)];
        std::vector<std::string> more;
        if (i % 3 == 2) more.push_back("--stop-first");
        const std::vector<pid_t> old = pids();
        auto outcome = resize_beside(size.attention, size.ffn, more);
        for (int kills = 0; kills < 2; ++kills) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 150));
            // Children of afdd, of both crews.
            std::vector<pid_t> all;
            const std::string pid = std::to_string(instance_.pid());
            std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
            for (pid_t child = 0; children >> child;) all.push_back(child);
            if (!all.empty()) kill(all[random() % all.size()], SIGKILL);
        }
        expect_resized(outcome.get(), size.attention, size.ffn);
        load.wait_for_replies(6);
    }
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    instance_.wait_ready();
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// The client goes, the resize does not; and a request that outlives its connection goes on, too.
TEST_F(Resize, ItsClientMayGoAndAResumableRequestIsFoundAgain) {
    const auto expected = instance_.connect().generate(long_request(900));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    hook_.hold();
    {
        client::Request asked;
        asked.set_request_id(1);
        asked.mutable_resize()->set_attention_workers(2);
        client::Connection hasty = instance_.open_connection();
        ASSERT_TRUE(hasty.send(asked).ok());
        wait_for_step("workers start");
    }
    client::Generate wish = long_request(900);
    wish.set_resumable_ms(60'000);
    std::string id;
    {
        // Its connection ends with the object, in the middle of the reply.
        client::Connection connection = instance_.open_connection();
        client::Request request;
        request.set_request_id(1);
        *request.mutable_generate() = wish;
        ASSERT_TRUE(connection.send(request).ok());
        std::vector<client::Response> responses;
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        while (id.empty() && std::chrono::steady_clock::now() < deadline) {
            ASSERT_TRUE(connection.receive(responses).ok());
            for (const client::Response& response : responses) {
                if (response.has_accepted()) id = response.accepted().resume_id();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    ASSERT_FALSE(id.empty());
    hook_.let_go();
    instance_.wait_for("the resize has ended", [](const client::Status& status) {
        return status.resize().empty() && status.workers_size() == 3;
    });
    client::Resume resume;
    resume.set_id(id);
    const auto found = instance_.connect().resume(resume);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids, expected.value().token_ids);
    EXPECT_EQ(found.value().logprobs, expected.value().logprobs);
    EXPECT_EQ(instance_.stop(), 0);
}

}  // namespace
}  // namespace afd::test
