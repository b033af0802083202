// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/worker_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/control_channel.h"
#include "tests/daemon/control/scarce_kernel.h"
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
    void connect(uint64_t answer_timeout_ms = kControlWatchdogMs) {
        std::thread afdd([this] { welcome(); });
        auto connected = WorkerControl::connect({.role = control::FFN,
                                                 .control_socket = path_,
                                                 .handshake_timeout_ms = answer_timeout_ms});
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

    // afdd is asked what is voided, and answers with this round.
    void answer_voided(int32_t round) {
        control::WorkerMessage question;
        ASSERT_TRUE(receive(question) && question.has_loaded());
        control::SupervisorMessage message;
        message.mutable_shutdown();
        afdd_->queue(message);
        message.mutable_voided()->add_rounds()->set_round(round);
        afdd_->queue(message);
        ASSERT_TRUE(afdd_->flush().ok());
    }

    // The memory of round 3 of session 2, with these descriptors.
    void hand_over(uint64_t receive_bytes, uint64_t return_bytes, const std::vector<int>& fds) {
        control::SupervisorMessage message;
        control::SegmentAnswer& segment = *message.mutable_segment();
        segment.set_session(2);
        segment.set_round(3);
        segment.set_receive_bytes(receive_bytes);
        segment.set_return_bytes(return_bytes);
        afdd_->queue(message, fds);
        ASSERT_TRUE(afdd_->flush().ok());
    }

    // The next command of the data thread; none came: kShutdown.
    WorkerCommand next_command() {
        const auto deadline =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(kControlWatchdogMs);
        WorkerCommand command;
        while (!worker_->port().pop_command(command)) {
            if (std::chrono::steady_clock::now() > deadline) return {};
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return command;
    }
    // Null: none came.
    std::unique_ptr<SequenceRequest> next_admitted() { return std::move(next_command().sequence); }

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
        answer.mutable_welcome()->set_segment_prefix("/afd-worker_control_test");
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

// Goal: a worker with its weights waits for what is voided, also if it is to end by then: with a
// Ready in front of it, afdd would forget the round (R12). Method: afdd says both. Oracle: the
// round.
TEST_F(WorkerControlTest, WhatIsVoidedIsHeardWhenTheWeightsAreThere) {
    connect();
    worker_->start();
    std::thread afdd([this] { answer_voided(7); });
    const auto told = worker_->ask_voided();
    afdd.join();
    ASSERT_TRUE(told.ok()) << told.error().message;
    ASSERT_EQ(told.value().rounds_size(), 1);
    EXPECT_EQ(told.value().rounds(0).round(), 7);
    EXPECT_EQ(next_command().kind, WorkerCommand::Kind::kShutdown);
    worker_->finish();
}

TEST_F(WorkerControlTest, AnAfddThatDoesNotSayWhatIsVoidedIsNotAwaitedForEver) {
    constexpr uint64_t kTimeoutMs = 2000;
    connect(kTimeoutMs);
    worker_->start();
    const auto told = worker_->ask_voided();
    ASSERT_FALSE(told.ok());
    EXPECT_EQ(told.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(
        told.error().message,
        "this worker has its weights, and afdd has not said within 2000 ms what is voided; is "
        "afdd stopped?");
    worker_->finish();
}

// Goal: a machine that is short of memory for a while does not end its workers. Method: sends fail,
// first those of the Hello, then those of an event. Oracle: both come; a worker that takes this for
// the end of afdd ends the program.
TEST_F(WorkerControlTest, AShortageOfTheKernelIsNotTheEndOfAfdd) {
    ScarceKernel::fail_sends(3, ENOBUFS);
    connect();
    EXPECT_EQ(ScarceKernel::num_left(), 0);
    worker_->start();
    ScarceKernel::fail_sends(3, ENOMEM);
    push(WorkerEvent::Kind::kStarted);
    control::WorkerMessage message;
    ASSERT_TRUE(receive(message));
    EXPECT_EQ(message.events().started_size(), 1);
    EXPECT_EQ(ScarceKernel::num_left(), 0);
    worker_->finish();
}

// Goal: a worker that ends says all that it has to say. Method: more events than a batch has, or
// the socket takes at once, which nobody was woken for. Oracle: their number.
TEST_F(WorkerControlTest, WhatIsInTheRingAtTheEndLeavesBatchByBatch) {
    constexpr int kEvents = 10'000;
    connect();
    worker_->start();
    for (int i = 0; i < kEvents; ++i) {
        WorkerEvent event{.kind = WorkerEvent::Kind::kEnd, .sequence_id = uint64_t{1} << 60};
        event.set_text("%s", std::string(200, 'x').c_str());
        ASSERT_TRUE(worker_->port().push(std::move(event)));
    }
    std::thread ending([this] { worker_->finish(); });
    int num_ends = 0;
    for (control::WorkerMessage message; num_ends < kEvents && receive(message);) {
        num_ends += message.events().ends_size();
    }
    ending.join();
    EXPECT_EQ(num_ends, kEvents);
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

// Goal: the memory of a two-phase round comes mapped to the data thread, and what is not as it
// should be is refused and costs neither the worker nor the next round. Method: a rank is handed a
// sealed file for each segment; then a file that could be shortened for one of them, a file of
// another size, and sealed ones again. Oracle: sizes, codes, and bytes that are seen through both
// mappings.
TEST_F(WorkerControlTest, MemoryOfARoundIsMappedAsItIsHandedOver) {
    using schedule::Segment;
    const std::string prefix = "/afd-worker_control_test-" + std::to_string(::getpid());
    const Segment receive = Segment::create_sealed(prefix + "-receive", 8192).value();
    const Segment results = Segment::create_sealed(prefix + "-return", 4096).value();
    Segment::unlink(receive.name());
    Segment::unlink(results.name());
    const UniqueFd open_file(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(open_file.get(), 4096), 0);
    connect();
    worker_->start();

    hand_over(8192, 4096, {receive.descriptor(), results.descriptor()});
    WorkerCommand command = next_command();
    ASSERT_EQ(command.kind, WorkerCommand::Kind::kSegment);
    EXPECT_EQ(command.session, 2U);
    EXPECT_EQ(command.round, 3);
    ASSERT_NE(command.segments, nullptr);
    receive.data()[8191] = std::byte{7};
    EXPECT_EQ(command.segments->receive.const_data()[8191], std::byte{7});
    command.segments->results.data()[4095] = std::byte{9};
    EXPECT_EQ(results.const_data()[4095], std::byte{9});

    hand_over(8192, 4096, {receive.descriptor(), open_file.get()});
    command = next_command();
    EXPECT_EQ(command.code, Code::kPermissionDenied);
    EXPECT_EQ(command.segments, nullptr);
    hand_over(4096, 4096, {receive.descriptor(), results.descriptor()});
    EXPECT_EQ(next_command().code, Code::kFailedPrecondition);

    hand_over(8192, 0, {receive.descriptor()});
    command = next_command();
    ASSERT_NE(command.segments, nullptr);
    EXPECT_EQ(command.segments->receive.size(), 8192U);
    EXPECT_EQ(command.segments->results.size(), 0U);
    worker_->finish();
}

}  // namespace
}  // namespace afd::daemon
