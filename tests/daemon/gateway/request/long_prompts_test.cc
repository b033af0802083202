// SPDX-License-Identifier: Apache-2.0
//
// Prompts that are too long for the loop. Goal: while one is read, others are served; it is then
// served as any other, or refused with the same words, and a client that is gone leaves nothing
// behind. Method: the thread that reads is held until the test lets it go. Oracle: what the workers
// were told, and the answers.
#include "daemon/gateway/request/long_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/gateway/gateway.h"
#include "tests/daemon/gateway/held_thread.h"
#include "tests/daemon/gateway/memory_session.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr uint32_t kContext = 1 << 16;

class LongPromptsTest : public testing::Test {
  protected:
    LongPromptsTest() : tokenizer_(make_byte_tokenizer()), thread_(loop_) {
        config_.attention_workers = 1;
        config_.kv_tokens = kContext;
        config_.max_sequences = 8;
        config_.max_queue = 8;
        config_.connections_max = 100;
        config_.connection_requests_max = 100;
        config_.output_buffer_kib = 64;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = kContext;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        model.texts = &thread_.texts();
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
        gateway_->on_attention_ready(0, kContext);
    }

    // A text of so many bytes, each of which is its token.
    static std::string text(size_t bytes) {
        std::string text;
        while (text.size() < bytes) text += static_cast<char>('a' + text.size() % 26);
        return text;
    }
    bool is_answered(const MemorySession& client, uint64_t request_id) {
        return run_until(loop_, [&] { return client.last(request_id) != nullptr; });
    }

    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    HeldThread thread_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
};

TEST_F(LongPromptsTest, OthersAreServedWhileOneIsRead) {
    MemorySession& client = MemorySession::open(*gateway_, "long");
    MemorySession& other = MemorySession::open(*gateway_, "short");
    const std::string prompt = text(10'000);
    client.ask(generate(1, prompt, 3));
    other.ask(generate(1, "abc", 3));
    ASSERT_NE(other.last(1), nullptr);
    EXPECT_TRUE(other.last(1)->has_accepted());
    EXPECT_EQ(instance_.next().second.admit().tokens_size(), 3);
    EXPECT_EQ(client.last(1), nullptr);
    thread_.release();
    ASSERT_TRUE(is_answered(client, 1));
    EXPECT_EQ(client.last(1)->accepted().num_prompt_tokens(), prompt.size());
    const control::SupervisorMessage told = instance_.next().second;
    const auto& tokens = told.admit().tokens();
    EXPECT_EQ(std::string(tokens.begin(), tokens.end()), prompt);
}

TEST_F(LongPromptsTest, ThreadRefusesWithTheWordsOfTheLoop) {
    thread_.release();
    MemorySession& client = MemorySession::open(*gateway_, "long");
    // Too long whatever its tokens are: the longest has 7 bytes.
    client.ask(generate(1, text(7 * size_t{kContext} + 1), 3));
    client.ask(generate(2, text(8000) + "\xff", 3));
    ASSERT_TRUE(is_answered(client, 1));
    ASSERT_TRUE(is_answered(client, 2));
    EXPECT_THAT(client.last(1)->error().message(),
                MatchesRegex("the prompt has 458753 bytes, which are at least [0-9]+ tokens: at "
                             "most 65536 fit, the context length of the model.*"));
    EXPECT_THAT(client.last(2)->error().message(), HasSubstr("not valid UTF-8"));
    EXPECT_FALSE(instance_.has_next());
}

TEST_F(LongPromptsTest, ClientThatIsGoneLeavesNothingBehind) {
    MemorySession& client = MemorySession::open(*gateway_, "long");
    MemorySession& other = MemorySession::open(*gateway_, "other");
    client.ask(generate(1, text(10'000), 3));
    other.ask(generate(2, text(5000), 3));
    client.close();
    thread_.release();
    ASSERT_TRUE(is_answered(other, 2));
    EXPECT_EQ(instance_.next().second.admit().tokens_size(), 5000);
    EXPECT_FALSE(instance_.has_next());
}

TEST_F(LongPromptsTest, CancelReachesARequestThatIsRead) {
    MemorySession& client = MemorySession::open(*gateway_, "long");
    client.ask(generate(1, text(10'000), 3));
    client::Request cancel;
    cancel.set_request_id(2);
    cancel.mutable_cancel()->set_target(1);
    client.ask(cancel);
    thread_.release();
    ASSERT_TRUE(is_answered(client, 1));
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kCancelled));
    EXPECT_FALSE(instance_.has_next());
}

// A request whose id is taken, or that has no place, is not worth reading: the thread is held, and
// the answer comes all the same.
TEST_F(LongPromptsTest, WhatIsRefusedInAnyCaseIsNotRead) {
    MemorySession& client = MemorySession::open(*gateway_, "long");
    client.ask(generate(1, "abc", 3));
    client.ask(generate(1, text(10'000), 3));
    EXPECT_THAT(client.last(1)->error().message(), HasSubstr("request_id 1 is in flight"));
    gateway_->drain();
    client.ask(generate(2, text(10'000), 3));
    ASSERT_NE(client.last(2), nullptr);
    EXPECT_EQ(client.last(2)->error().code(), static_cast<uint32_t>(Code::kFailedPrecondition));
}

TEST_F(LongPromptsTest, DrainWaitsForTheAnswer) {
    MemorySession& client = MemorySession::open(*gateway_, "long");
    client.ask(generate(1, text(10'000), 3));
    client::Request drain;
    drain.set_request_id(2);
    drain.mutable_drain();
    client.ask(drain);
    EXPECT_EQ(client.last(2), nullptr) << "the drain is over while a request waits";
    thread_.release();
    ASSERT_TRUE(is_answered(client, 2));
    EXPECT_TRUE(client.last(2)->has_done());
    EXPECT_EQ(client.last(1)->error().code(), static_cast<uint32_t>(Code::kFailedPrecondition));
}

// Over a socket: what is behind a long prompt waits for it, so that a client's requests keep their
// order and what it holds here is one of them.
TEST_F(LongPromptsTest, FramesBehindALongPromptWait) {
    TestClient client(loop_, *gateway_);
    client::Request ping;
    ping.set_request_id(2);
    ping.mutable_ping();
    std::string bytes;
    append_frame(generate(1, text(10'000), 3), bytes);
    append_frame(ping, bytes);
    client.send_bytes(bytes);
    TestClient other(loop_, *gateway_);
    other.send(ping);
    const auto hears = [&](TestClient& one, uint64_t id) {
        return run_until(loop_, [&] {
            one.receive();
            return one.last(id) != nullptr;
        });
    };
    ASSERT_TRUE(hears(other, 2));
    client.receive();
    EXPECT_TRUE(client.answers.empty());
    thread_.release();
    ASSERT_TRUE(hears(client, 2));
    EXPECT_TRUE(client.answers.front().has_accepted());
}

TEST_F(LongPromptsTest, TokensOfALongText) {
    thread_.release();
    MemorySession& client = MemorySession::open(*gateway_, "long");
    client::Request request;
    request.set_request_id(1);
    request.mutable_tokenize()->set_text(text(10'000));
    client.ask(request);
    ASSERT_TRUE(is_answered(client, 1));
    EXPECT_EQ(client.last(1)->tokens().ids_size(), 10'000);
}

}  // namespace
}  // namespace afd::daemon
