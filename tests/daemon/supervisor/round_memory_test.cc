// SPDX-License-Identifier: Apache-2.0
//
// Workers that ask the supervisor for the memory of two-phase rounds.

#include <unistd.h>

#include <csignal>
#include <string>

#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string prefix_of_rounds() {
    return schedule::segment_prefix("supervisor_test", static_cast<uint64_t>(::getpid()));
}

// Goal: whoever asks for the memory of a round gets an answer, also before it is ready. Method: the
// workers ask while they start, about a session that has no worker, and are ready only once they
// have heard; first an instance that makes memory for ranks, then one that makes none. Oracle: what
// they heard, and what they mapped.
TEST_F(SupervisorTest, SegmentRequestOfAStartingWorkerIsAnswered) {
    const ScopedVariable ask("AFD_FAKE_ASK", "1");
    config_.attention_workers = 1;
    TwoPhaseSegments segments(prefix_of_rounds(), 2, 0, {4096, 512});
    acquire_segments_ = [&](uint32_t rank, const control::SegmentRequest& request) {
        EXPECT_FALSE(program_.is_ready);
        return segments.acquire(rank,
                                request.session(),
                                request.round(),
                                {request.receive_bytes(), request.return_bytes()});
    };
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready && waits().size() == 2; }));
    EXPECT_THAT(waits(),
                ElementsAre("attention worker 0: round 7 of session 1: failed precondition",
                            "ffn worker 0: round 7 of session 1: 4096 and 512 bytes"));
}

// Goal: the session of a round gets its memory, too. Method: a rank asks that starts again while
// the session serves. Oracle: what both mapped.
TEST_F(SupervisorTest, MemoryOfARoundGoesToItsSessionToo) {
    config_.attention_workers = 1;
    TwoPhaseSegments segments(prefix_of_rounds(), 1, 0, {4096, 512});
    acquire_from(segments);
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const ScopedVariable ask("AFD_FAKE_ASK", "0");
    ASSERT_EQ(::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL), 0);
    ASSERT_TRUE(run_until(loop_, [&] { return waits().size() == 2; }));
    EXPECT_THAT(waits(),
                ElementsAre("attention worker 0: round 7 at rank 0: 4096 and 512 bytes",
                            "ffn worker 0: round 7 of session 0: 4096 and 512 bytes"));
}

// Goal: where workers share no windows a rank hears that it may take memory, and the session hears
// nothing.
TEST_F(SupervisorTest, ARankMayTakeMemoryOfItsOwnForARound) {
    config_.attention_workers = 1;
    TwoPhaseSegments segments(prefix_of_rounds(), 1, 0, {4096, 512}, schedule::Windows::kPrivate);
    acquire_from(segments);
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const ScopedVariable ask("AFD_FAKE_ASK", "0");
    ASSERT_EQ(::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL), 0);
    ASSERT_TRUE(run_until(loop_, [&] { return !waits().empty(); }));
    EXPECT_THAT(waits(), ElementsAre("ffn worker 0: round 7 of session 0: 0 and 0 bytes"));
    EXPECT_EQ(segments.bytes_of(0), 4096U + 512U);
}

TEST_F(SupervisorTest, SegmentRequestThatCannotBeServedIsRefused) {
    const ScopedVariable ask("AFD_FAKE_ASK", "1");
    config_.attention_workers = 1;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready && waits().size() == 2; }));
    EXPECT_THAT(waits(),
                ElementsAre("attention worker 0: round 7 of session 1: failed precondition",
                            "ffn worker 0: round 7 of session 1: failed precondition"));
}

// Goal: whoever asks for memory and does not read the answers costs afdd none of its own, also
// where these bring no descriptors. Method: a rank of workers that share no windows. Oracle: it is
// killed until it is given up, with the words.
TEST_F(SupervisorTest, WhoAsksForMemoryAndReadsNoAnswerIsKilled) {
    const ScopedVariable floods("AFD_FAKE_FLOOD", "1");
    config_.attention_workers = 1;
    TwoPhaseSegments segments(prefix_of_rounds(), 1, 0, {4096, 512}, schedule::Windows::kPrivate);
    acquire_from(segments);
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("it reads none of 4096 answers to what it asked"));
}

// Goal: a worker cannot fill the log. Method: the same rank, where every request is refused: more
// than four thousand times before it is killed. Oracle: the lines.
TEST_F(SupervisorTest, RefusedRequestsForMemoryAreALineNowAndThen) {
    const ScopedVariable floods("AFD_FAKE_FLOOD", "1");
    config_.attention_workers = 1;
    set_log_level("warn");
    testing::internal::CaptureStderr();
    start();
    EXPECT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    const std::string lines = testing::internal::GetCapturedStderr();
    set_log_level("off");
    EXPECT_THAT(lines, HasSubstr("this instance makes none; the batch goes through the windows"));
    EXPECT_LT(num_lines_with("goes through the windows", lines), 1000U);
    EXPECT_LT(num_lines_with("killing ffn worker 0", lines), 100U);
}

}  // namespace
}  // namespace afd::daemon
