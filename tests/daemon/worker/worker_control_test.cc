// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/worker_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/worker/control_channel.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::UnorderedElementsAre;
using Body = control::WorkerMessage::BodyCase;

constexpr int kControlWatchdogMs = 30'000;

// A worker's tie to afdd, whose end the test holds.
class WorkerControlTest : public testing::Test {
  protected:
    WorkerControlTest()
        : path_(directory_.path("control.sock")),
          listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
          doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
        EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
                  0);
        EXPECT_EQ(::listen(listener_.get(), 1), 0);
    }
    // The worker's end goes first: it ends the process when afdd is gone.
    ~WorkerControlTest() override { worker_.reset(); }

    // The handshake; the control thread does not run yet.
    void connect() {
        std::thread afdd([this] { welcome(); });
        auto connected = WorkerControl::connect({.role = control::FFN, .control_socket = path_});
        afdd.join();
        ASSERT_TRUE(connected.ok()) << connected.error().message;
        worker_ = std::move(connected).value();
    }

    // Waits for the worker's next message; false: none came.
    bool receive(control::WorkerMessage& message) {
        while (!afdd_->next(message).value()) {
            pollfd entry{afdd_->fd(), POLLIN, 0};
            if (::poll(&entry, 1, kControlWatchdogMs) <= 0 || !afdd_->read().ok()) return false;
        }
        return true;
    }

    void admit(const control::Admit& admit) {
        control::SupervisorMessage message;
        *message.mutable_admit() = admit;
        afdd_->queue(message);
        ASSERT_TRUE(afdd_->flush().ok());
    }

    // The next command of the data thread; none came: null.
    std::unique_ptr<SequenceRequest> next_admitted() {
        const auto deadline =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(kControlWatchdogMs);
        WorkerCommand command;
        while (!worker_->port().pop_command(command)) {
            if (std::chrono::steady_clock::now() > deadline) return nullptr;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return std::move(command.sequence);
    }

    void push(WorkerEvent::Kind kind) {
        ASSERT_TRUE(worker_->port().push({.kind = kind}));
        worker_->port().flush();
    }

  private:
    void welcome() {
        pollfd entry{listener_.get(), POLLIN, 0};
        ASSERT_GT(::poll(&entry, 1, kControlWatchdogMs), 0);
        afdd_ = std::make_unique<ControlChannel>(
            UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
        control::WorkerMessage hello;
        ASSERT_TRUE(receive(hello) && hello.has_hello());
        control::SupervisorMessage answer;
        answer.mutable_welcome()->set_num_fds(1);
        const int fds[] = {doorbell_.get()};
        afdd_->queue(answer, fds);
        ASSERT_TRUE(afdd_->flush().ok());
    }

    const test::TemporaryDirectory directory_;
    const std::string path_;
    const UniqueFd listener_;
    const UniqueFd doorbell_;
    std::unique_ptr<ControlChannel> afdd_;

  protected:
    std::unique_ptr<WorkerControl> worker_;
};

// Goal: afdd hears that a worker is ready before it hears what the worker does as a ready one.
// Method: a successor of a rank: it gives memory back while it starts, so that the control thread
// is already woken for the ring, then is ready and asks for memory at once; the control thread gets
// its core only now, and finds everything. Oracle: the order of the messages.
TEST_F(WorkerControlTest, ReadyLeavesBeforeWhatIsPushedAfterIt) {
    connect();
    push(WorkerEvent::Kind::kSegmentRelease);
    worker_->ready({});
    push(WorkerEvent::Kind::kSegmentRequest);
    push(WorkerEvent::Kind::kStarted);
    worker_->start();
    std::vector<Body> bodies;
    for (control::WorkerMessage message; bodies.size() < 3 && receive(message);) {
        // That one may come before or after: it was pushed before.
        if (message.body_case() != Body::kSegmentRelease) bodies.push_back(message.body_case());
    }
    ASSERT_EQ(bodies.size(), 3U);
    EXPECT_EQ(bodies[0], Body::kReady);
    EXPECT_THAT(bodies, UnorderedElementsAre(Body::kReady, Body::kSegmentRequest, Body::kEvents));
    worker_->finish();
}

// A request for a list of digits, of which "[1" is there.
control::Admit half_a_list() {
    control::Admit admit;
    admit.set_sequence_id(7);
    for (const uint32_t id : {4, 5, 1, 3}) admit.add_tokens(id);
    admit.set_num_prompt_tokens(2);
    admit.set_max_total_tokens(10);
    admit.add_stop_ids(0);
    admit.add_stop_ids(3);
    admit.add_end_ids(0);
    admit.mutable_sampling()->mutable_response_format()->set_json_schema(
        R"({"type": "array", "items": {"type": "integer"}})");
    return admit;
}

// Goal: a request with a response format comes to the data thread with its constraint, which stands
// behind the tokens that were sent before a replay. Oracle: what may come there.
TEST_F(WorkerControlTest, AConstraintStandsBehindWhatWasSent) {
    connect();
    const std::vector<std::string> tokens = {"", "[", "]", "1", "x", "["};
    worker_->set_vocabulary(std::make_shared<const model::VocabularyTrie>(tokens));
    worker_->start();
    admit(half_a_list());
    const auto request = next_admitted();
    ASSERT_NE(request, nullptr);
    ASSERT_NE(request->constraint, nullptr);
    EXPECT_EQ(request->constraint->allowed()[0], 1U << 2 | 1U << 3) << "] and 1";
    ASSERT_TRUE(request->constraint->advance(2));
    EXPECT_EQ(request->constraint->allowed()[0], 1U << 0) << "1 is text, though it may end it";
    control::Admit plain = half_a_list();
    plain.clear_sampling();
    admit(plain);
    const auto free = next_admitted();
    ASSERT_NE(free, nullptr);
    EXPECT_EQ(free->constraint, nullptr);
    worker_->finish();
}

// Goal: what cannot be constrained ends with the reason, and the data thread never sees it.
TEST_F(WorkerControlTest, ARequestThatCannotBeConstrainedEndsAtOnce) {
    connect();
    worker_->start();
    admit(half_a_list());
    control::WorkerMessage message;
    ASSERT_TRUE(receive(message));
    ASSERT_EQ(message.events().ends_size(), 1);
    const control::EndEvent& end = message.events().ends(0);
    EXPECT_EQ(end.sequence_id(), 7U);
    EXPECT_EQ(end.code(), static_cast<uint32_t>(Code::kFailedPrecondition));
    EXPECT_THAT(end.message(), testing::HasSubstr("no vocabulary"));
    worker_->finish();
}

TEST_F(WorkerControlTest, TokensThatTheFormatForbidsAreNoReplay) {
    connect();
    const std::vector<std::string> tokens = {"", "[", "]", "1", "x", "["};
    worker_->set_vocabulary(std::make_shared<const model::VocabularyTrie>(tokens));
    worker_->start();
    control::Admit wrong = half_a_list();
    wrong.set_tokens(3, 4);
    admit(wrong);
    control::WorkerMessage message;
    ASSERT_TRUE(receive(message));
    ASSERT_EQ(message.events().ends_size(), 1);
    EXPECT_EQ(message.events().ends(0).message(),
              "token 4, number 1 of the output, may not come under response_format");
    worker_->finish();
}

}  // namespace
}  // namespace afd::daemon
