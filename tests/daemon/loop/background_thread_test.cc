// SPDX-License-Identifier: Apache-2.0
//
// Jobs off the loop. Goal: they are done in their order, what follows runs on the loop's thread,
// and who is gone hears nothing. Method: the first job waits until the test lets it go.
#include "daemon/loop/background_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;

TEST(BackgroundThread, JobsAreDoneInTheirOrderAndFollowedOnTheLoop) {
    EventLoop loop;
    BackgroundThread thread(loop);
    std::vector<int> worked;
    std::vector<int> done;
    std::vector<std::unique_ptr<BackgroundThread::Job>> jobs;
    for (int i = 0; i < 3; ++i) {
        jobs.push_back(thread.run(
            [&worked, i, loop_thread = std::this_thread::get_id()] {
                EXPECT_NE(std::this_thread::get_id(), loop_thread);
                worked.push_back(i);
            },
            [&done, i, loop_thread = std::this_thread::get_id()] {
                EXPECT_EQ(std::this_thread::get_id(), loop_thread);
                done.push_back(i);
            }));
    }
    EXPECT_TRUE(done.empty()) << "done within run()";
    ASSERT_TRUE(run_until(loop, [&] { return done.size() == 3; }));
    EXPECT_THAT(worked, ElementsAre(0, 1, 2));
    EXPECT_THAT(done, ElementsAre(0, 1, 2));
}

// One that is dropped while it waits does not begin; one that is dropped while it is done is done,
// and not followed; and one may be dropped by what follows another.
TEST(BackgroundThread, DroppedJobsAreNotFollowed) {
    EventLoop loop;
    BackgroundThread thread(loop);
    std::promise<void> begun;
    std::promise<void> held;
    bool has_waiting_begun = false;
    bool is_over = false;
    auto running = thread.run(
        [&] {
            begun.set_value();
            held.get_future().wait();
        },
        [] { ADD_FAILURE() << "a dropped job was followed"; });
    auto waiting = thread.run([&] { has_waiting_begun = true; }, [] { ADD_FAILURE(); });
    std::unique_ptr<BackgroundThread::Job> last;
    auto third = thread.run([] {}, [&] { last.reset(); });
    last = thread.run([] {}, [] { ADD_FAILURE() << "dropped by the one before it"; });
    begun.get_future().wait();
    running.reset();
    waiting.reset();
    held.set_value();
    ASSERT_TRUE(run_until(loop, [&] { return last == nullptr; }));
    const auto end = thread.run([] {}, [&] { is_over = true; });
    ASSERT_TRUE(run_until(loop, [&] { return is_over; }));
    EXPECT_FALSE(has_waiting_begun);
}

// Goal: jobs that nobody waits for any more fill no memory while the thread is busy. Oracle: what
// they own, before the thread gets to them.
TEST(BackgroundThread, DroppedJobsOwnNothing) {
    EventLoop loop;
    BackgroundThread thread(loop);
    std::promise<void> held;
    const auto blocker = thread.run([&] { held.get_future().wait(); }, [] {});
    const auto of_work = std::make_shared<int>();
    const auto of_done = std::make_shared<int>();
    auto first = thread.run([of_work] {}, [of_done] { ADD_FAILURE(); });
    auto second = thread.run([of_work] {}, [of_done] { ADD_FAILURE(); });
    bool is_followed = false;
    const auto kept = thread.run([] {}, [&] { is_followed = true; });
    EXPECT_EQ(of_work.use_count(), 3);
    first.reset();
    second.reset();
    EXPECT_EQ(of_work.use_count(), 1);
    EXPECT_EQ(of_done.use_count(), 1);
    held.set_value();
    EXPECT_TRUE(run_until(loop, [&] { return is_followed; }));
}

// Goal: a name server that does not answer holds nobody's end up. Method: work that is held until
// the thread's owner is gone; with kWait this would hang.
TEST(BackgroundThread, LeavesWorkThatTakesLong) {
    EventLoop loop;
    std::promise<void> begun;
    const auto held = std::make_shared<std::promise<void>>();
    const auto is_done = std::make_shared<std::promise<void>>();
    std::unique_ptr<BackgroundThread::Job> job;
    {
        BackgroundThread thread(loop, BackgroundThread::End::kLeave);
        job = thread.run(
            [&begun, held, is_done] {
                begun.set_value();
                held->get_future().wait();
                is_done->set_value();
            },
            [] { ADD_FAILURE() << "followed by nobody's loop"; });
        begun.get_future().wait();
    }
    held->set_value();
    is_done->get_future().wait();
}

TEST(BackgroundThread, EndsWithJobsThatWait) {
    EventLoop loop;
    std::unique_ptr<BackgroundThread::Job> job;
    {
        BackgroundThread thread(loop);
        job = thread.run([] {}, [] { ADD_FAILURE() << "followed by nobody's loop"; });
    }
    EXPECT_NE(job, nullptr);
}

}  // namespace
}  // namespace afd::daemon
