// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/worker_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <thread>

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

}  // namespace
}  // namespace afd::daemon
