// SPDX-License-Identifier: Apache-2.0
//
// The client library against the mock: what reaches the caller, in which order, and what it is
// told when afdd dies, stays silent or sends nonsense.
#include "clients/afd_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/clients/mock_afdd.h"

namespace afd::client {
namespace {

using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::steady_answer;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Client connect_to(const MockAfdd& server) {
    Result<Client> client = Client::connect({server.socket_path(), ""});
    EXPECT_TRUE(client.ok()) << client.error().message;
    return std::move(client).value();
}

Generate prompt(const std::string& text) {
    Generate request;
    request.set_text(text);
    return request;
}

TEST(Client, StreamsChunksInOrderAndCollectsThem) {
    MockAnswer answer;
    answer.chunks = {{milliseconds(1), 1, "one "},
                     {milliseconds(1), 2, "two three "},
                     {milliseconds(0), 1, "four"}};
    MockAfdd server([&](size_t, const Generate&) { return answer; });
    Client client = connect_to(server);

    Generate request = prompt("count");
    request.set_return_token_ids(true);
    request.set_return_logprobs(true);
    request.mutable_sampling()->set_seed(7);
    std::vector<std::string> seen;
    const Result<Generation> result = client.generate(request, [&](const Chunk& chunk) {
        seen.push_back(chunk.text());
        return true;
    });

    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_THAT(seen, ElementsAre("one ", "two three ", "four"));
    EXPECT_EQ(result.value().text, "one two three four");
    EXPECT_THAT(result.value().token_ids, ElementsAre(100, 101, 102, 103));
    EXPECT_THAT(result.value().logprobs, ElementsAre(-0.5F, -0.5F, -0.5F, -0.5F));
    EXPECT_THAT(result.value().prompt_ids, ElementsAre(1, 2, 3));
    EXPECT_EQ(result.value().seed, 7u);
    EXPECT_EQ(result.value().finished.reason(), LENGTH);
    EXPECT_EQ(server.generates().at(0).text(), "count");
}

TEST(Client, ReportsTheErrorOfARequestAndStaysUsable) {
    MockAfdd server([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(2, milliseconds(0), milliseconds(0));
        if (index == 0) answer.end = MockAnswer::End::kError;
        return answer;
    });
    Client client = connect_to(server);
    const Result<Generation> failed = client.generate(prompt("a"));
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
    EXPECT_EQ(failed.error().message, "the mock is full");
    EXPECT_TRUE(client.generate(prompt("b")).ok());
}

TEST(Client, CallbackCancelsAndKeepsWhatCame) {
    MockAfdd server([](size_t, const Generate&) {
        return steady_answer(1000, milliseconds(0), milliseconds(50));
    });
    Client client = connect_to(server);
    size_t num_chunks = 0;
    const Result<Generation> result =
        client.generate(prompt("a"), [&](const Chunk&) { return ++num_chunks < 3; });
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().finished.reason(), CANCELLED);
    EXPECT_EQ(result.value().text.substr(0, 3), "xxx");
    EXPECT_EQ(server.num_cancels(), 1u);
}

// Goal: a callback that asks its own client is told so, and costs the stream nothing.
TEST(Client, ACallbackCannotAskItsOwnClient) {
    MockAfdd server(
        [](size_t, const Generate&) { return steady_answer(3, milliseconds(0), milliseconds(1)); });
    Client client = connect_to(server);
    std::vector<Code> codes;
    const auto on_accepted = [&](const Accepted&) {
        codes.push_back(client.generate(prompt("b")).error().code);
    };
    const auto on_chunk = [&](const Chunk&) {
        codes.push_back(client.status().error().code);
        return true;
    };
    const Result<Generation> result =
        client.generate(prompt("a"), on_chunk, nullptr, Client::kGenerateTimeout, on_accepted);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().text, "xxx");
    EXPECT_THAT(codes, AllOf(SizeIs(4), Each(Code::kFailedPrecondition)));
    const auto on_events = [&](const TraceEvents&) {
        EXPECT_EQ(client.status().error().code, Code::kFailedPrecondition);
    };
    EXPECT_TRUE(client.trace(milliseconds(1), on_events).ok());
    EXPECT_TRUE(client.status().ok());
}

// Goal: a caller who wants to wait for ever waits. Oracle: the answer, which comes later than the
// deadline of a sum that has overflowed.
TEST(Client, TimesThatTheClockCannotHoldAreItsLast) {
    MockAfdd server([](size_t, const Generate&) {
        return steady_answer(2, milliseconds(20), milliseconds(0));
    });
    const Endpoint endpoint{server.socket_path(), ""};
    Result<Client> client = Client::connect(endpoint, milliseconds::max());
    ASSERT_TRUE(client.ok()) << client.error().message;
    const Result<Generation> result =
        client.value().generate(prompt("a"), nullptr, nullptr, milliseconds::max());
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_TRUE(client.value().status(milliseconds::max()).ok());

    const Clock::time_point now = Clock::now();
    EXPECT_EQ(deadline_after(milliseconds::max()), Clock::time_point::max());
    EXPECT_GE(deadline_after(milliseconds::min()), now);
    EXPECT_GE(deadline_after(milliseconds(10)), now + milliseconds(10));
}

TEST(Client, ATraceThatTheProtocolCannotHoldIsRefused) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Client client = connect_to(server);
    for (const milliseconds duration : {milliseconds(-1), milliseconds(int64_t{1} << 32)}) {
        const Result<> refused = client.trace(duration, nullptr);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
        EXPECT_THAT(refused.error().message, HasSubstr("allowed are 0 to 4294967295"));
    }
}

TEST(Client, AnotherThreadCancelsASilentRequest) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer;
        answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    Client client = connect_to(server);
    Result<Cancellation> cancellation = Cancellation::create();
    ASSERT_TRUE(cancellation.ok());
    std::thread other([&] {
        while (server.generates().empty()) std::this_thread::yield();
        cancellation.value().request();
    });
    const Result<Generation> result = client.generate(prompt("a"), nullptr, &cancellation.value());
    other.join();
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().finished.reason(), CANCELLED);
}

TEST(Client, DeadlineCancelsTheRequestAndTheNextOneIsNotConfused) {
    MockAfdd server([](size_t index, const Generate&) {
        return index == 0 ? steady_answer(1000, milliseconds(0), milliseconds(20))
                          : steady_answer(2, milliseconds(0), milliseconds(0));
    });
    Client client = connect_to(server);
    const Result<Generation> late =
        client.generate(prompt("a"), nullptr, nullptr, milliseconds(100));
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
    EXPECT_THAT(late.error().message, HasSubstr("had not ended after 100 ms"));

    const Result<Generation> next = client.generate(prompt("b"));
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next.value().text, "xx");
    EXPECT_EQ(server.num_cancels(), 1u);
}

// `num_chunks` and the end, all on their way before the caller takes the first.
MockAfdd::Plan all_at_once(size_t num_chunks) {
    return [=](size_t, const Generate&) {
        return steady_answer(num_chunks, milliseconds(0), milliseconds(0));
    };
}

// Goal: a caller who takes chunks more slowly than they come gets no more of them once it has
// cancelled. Method: all are here when the third is taken. Oracle: the chunks that it is told, and
// the Cancel that afdd gets.
TEST(Client, CancellationStopsAlsoWhatHasArrived) {
    MockAfdd server(all_at_once(200));
    Client client = connect_to(server);
    Result<Cancellation> cancellation = Cancellation::create();
    ASSERT_TRUE(cancellation.ok());
    size_t num_told = 0;
    const auto on_chunk = [&](const Chunk&) {
        std::this_thread::sleep_for(milliseconds(5));
        if (++num_told == 3) cancellation.value().request();
        return true;
    };
    const Result<Generation> result = client.generate(prompt("a"), on_chunk, &cancellation.value());
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(num_told, 3u);
    EXPECT_EQ(result.value().text, std::string(200, 'x')) << "what came is kept";
    ASSERT_TRUE(client.status().ok());
    EXPECT_EQ(server.num_cancels(), 1u);
}

// Goal: the deadline holds for a caller who takes chunks more slowly than they come.
TEST(Client, DeadlineStopsAlsoWhatHasArrived) {
    MockAfdd server(all_at_once(200));
    Client client = connect_to(server);
    size_t num_told = 0;
    const auto on_chunk = [&](const Chunk&) {
        std::this_thread::sleep_for(milliseconds(5));
        ++num_told;
        return true;
    };
    const Result<Generation> result =
        client.generate(prompt("a"), on_chunk, nullptr, milliseconds(50));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
    EXPECT_THAT(result.error().message,
                HasSubstr("not ended after 50 ms (" + std::to_string(num_told) + " tokens came)"));
    EXPECT_LE(num_told, 10u);
    ASSERT_TRUE(client.status().ok());
    EXPECT_EQ(server.num_cancels(), 1u);
}

TEST(Client, ServerDyingMidStreamIsAnErrorAfterTheChunksThatCame) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = steady_answer(3, milliseconds(0), milliseconds(1));
        answer.end = MockAnswer::End::kDisconnect;
        return answer;
    });
    Client client = connect_to(server);
    std::string text;
    const Result<Generation> result = client.generate(prompt("a"), [&](const Chunk& chunk) {
        text += chunk.text();
        return true;
    });
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kUnavailable);
    EXPECT_THAT(result.error().message, HasSubstr("closed by afdd before all answers came"));
    EXPECT_EQ(text, "xxx");
    EXPECT_FALSE(client.status().ok());
}

TEST(Client, RefusesGarbageFrames) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        answer.end = MockAnswer::End::kGarbage;
        return answer;
    });
    Client client = connect_to(server);
    const Result<Generation> result = client.generate(prompt("a"));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDataLoss);
    EXPECT_THAT(result.error().message, HasSubstr("is this the socket of an afdd?"));
}

TEST(Client, ReportsAnErrorOfTheWholeConnection) {
    MockAfdd server([](size_t, const Generate&) {
        MockAnswer answer;
        answer.end = MockAnswer::End::kRefusal;
        answer.error = {Code::kDataLoss, "a frame of 9 bytes is not a Request"};
        return answer;
    });
    Client client = connect_to(server);
    const Result<Generation> result = client.generate(prompt("a"));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDataLoss);
    EXPECT_THAT(result.error().message, HasSubstr("a frame of 9 bytes is not a Request"));
}

TEST(Client, RefusesAnswersOutOfOrderOrWithWrongCounts) {
    MockAfdd server([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(2, milliseconds(0), milliseconds(0));
        answer.accept = index != 0;
        answer.num_tokens_invented = 5;
        return answer;
    });
    Client client = connect_to(server);
    const Result<Generation> unaccepted = client.generate(prompt("a"));
    ASSERT_FALSE(unaccepted.ok());
    EXPECT_EQ(unaccepted.error().code, Code::kDataLoss);
    EXPECT_THAT(unaccepted.error().message, HasSubstr("a chunk before the request was accepted"));

    const Result<Generation> miscounted = client.generate(prompt("b"));
    ASSERT_FALSE(miscounted.ok());
    EXPECT_THAT(miscounted.error().message,
                HasSubstr("chunks with 2 tokens, but finished after 7"));
}

TEST(Client, StatusDrainAndStop) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status;
    status.set_model("/models/demo");
    server.set_status(status);
    server.set_drain_time(milliseconds(60'000));
    Client client = connect_to(server);

    const Result<Status> got = client.status();
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(got.value().model(), "/models/demo");

    const Result<> impatient = client.drain(milliseconds(1));
    ASSERT_FALSE(impatient.ok());
    EXPECT_EQ(impatient.error().code, Code::kDeadlineExceeded);
    server.set_drain_time(milliseconds(100));
    EXPECT_TRUE(client.drain(milliseconds(20'000)).ok());
    const Result<std::string> stopped = client.stop_and_wait(milliseconds(20'000));
    ASSERT_TRUE(stopped.ok()) << stopped.error().message;
    EXPECT_EQ(stopped.value(), "");
}

// Goal: a drain that takes long is not blamed on afdd, which answers. Oracle: what the mock has.
TEST(Client, ADrainThatTakesLongSaysWhatIsLeft) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Status status;
    status.set_num_running(1);
    status.set_num_queued(4);
    server.set_status(status);
    server.set_drain_time(milliseconds(60'000));
    Client client = connect_to(server);
    const Result<> busy = client.drain(milliseconds(7));
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(busy.error().message,
              "1 running and 4 queued requests are left after 7 ms; afdd goes on draining (afdctl "
              "status)");
}

TEST(Client, WaitingForAnExitThatDoesNotComeEnds) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    server.stay_when_stopped();
    Client client = connect_to(server);
    const Result<std::string> result = client.stop_and_wait(milliseconds(10));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
}

// Goal: a wait for an afdd that is stopped ends long before its deadline, and says so.
// Method: the mock does nothing for a minute, as a stopped process: neither Chunk nor Done comes.
// Oracle: the error, long before the mock goes on with its answer.
TEST(Client, AnAfddWithoutASignOfLifeIsGivenUp) {
    MockAfdd server([](size_t, const Generate&) {
        return steady_answer(2, milliseconds(60'000), milliseconds(0));
    });
    server.stall_once(0, milliseconds(0), milliseconds(60'000));
    Client client = connect_to(server);
    client.set_patience({milliseconds(20), milliseconds(50)});
    const Result<Generation> result = client.generate(prompt("a"));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kUnavailable);
    EXPECT_THAT(result.error().message, HasSubstr(server.socket_path()));
    EXPECT_THAT(result.error().message, HasSubstr("no sign of life for "));
    EXPECT_THAT(result.error().message, HasSubstr("afdd hangs or is stopped"));
    EXPECT_TRUE(client.is_silent());
    EXPECT_FALSE(client.status().ok()) << "a connection that was given up is used again";
}

// Goal: a request that waits long is not given up while afdd lives.
// Method: its first chunk comes with the second question for a sign of life, which is asked only if
// the answer to the first was heard. Oracle: it ends well; without questions it does so never.
TEST(Client, AQuietAfddThatLivesIsWaitedFor) {
    MockAfdd server([](size_t, const Generate&) {
        return steady_answer(2, milliseconds(3'600'000), milliseconds(0));
    });
    server.answer_all_at_ping(2);
    Client client = connect_to(server);
    client.set_patience({milliseconds(50), milliseconds(30'000)});
    const Result<Generation> result =
        client.generate(prompt("a"), nullptr, nullptr, milliseconds(60'000));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().text, "xx");
    EXPECT_FALSE(client.is_silent());
}

TEST(Client, RefusesARequestThatAfddWouldNotTake) {
    MockAfdd server([](size_t, const Generate&) { return MockAnswer(); });
    Client client = connect_to(server);
    const Result<Generation> result = client.generate(prompt(std::string(kFrameBytesMax, 'a')));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr("shorten the prompt"));
    EXPECT_TRUE(client.status().ok());
}

}  // namespace
}  // namespace afd::client
