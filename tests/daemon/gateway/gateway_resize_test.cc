// SPDX-License-Identifier: Apache-2.0
//
// What the gateway does in a resize: requests stand still, and go on with other workers.

#include <gmock/gmock.h>

#include "tests/daemon/gateway/gateway_fixture.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GatewayResizeTest : public GatewayTest {
  protected:
    static client::Request resize(uint64_t request_id, uint32_t attention, uint32_t ffn) {
        client::Request request;
        request.set_request_id(request_id);
        request.mutable_resize()->set_attention_workers(attention);
        request.mutable_resize()->set_ffn_workers(ffn);
        return request;
    }
};

// Goal: nothing runs while the workers are exchanged, nobody hears an error, and then everything
// goes on behind its tokens. Method: two requests run on two workers, both of which go; one comes
// meanwhile; then there are three workers. Oracle: what the workers are told, and the texts.
TEST_F(GatewayResizeTest, RequestsStandStillAndGoOnWithOtherWorkers) {
    TestClient client(loop_, *gateway_);
    gateway_->on_attention_ready(0, 1024);
    gateway_->on_attention_ready(1, 1024);
    client.send(generate(1, "abc", 4));
    client.send(generate(2, "de", 4));
    const auto first = next_sent();
    const auto second = next_sent();
    EXPECT_NE(first.first, second.first);
    say_text(first.first, first.second.admit().sequence_id(), "xy");

    gateway_->stand_still();
    gateway_->on_attention_gone(0, {});
    client.send(generate(3, "f", 1));
    expect_answer(client, 3, client::Response::kAccepted);
    EXPECT_FALSE(instance_.has_next()) << "one worker is ready, and gets nothing";
    // What a worker says before its end still counts.
    say_text(second.first, second.second.admit().sequence_id(), "z");
    gateway_->on_attention_gone(1, {});

    gateway_->go_on(3, {});
    EXPECT_FALSE(instance_.has_next()) << "nobody is ready";
    gateway_->on_attention_ready(2, 1024);
    std::vector<uint32_t> sessions;
    std::vector<std::string> tokens;
    std::vector<uint64_t> ids;
    for (int i = 0; i < 3; ++i) {
        const auto [session, message] = next_sent();
        sessions.push_back(session);
        const auto& admitted = message.admit().tokens();
        tokens.emplace_back(admitted.begin(), admitted.end());
        ids.push_back(message.admit().sequence_id());
    }
    EXPECT_THAT(sessions, ElementsAre(2, 2, 2));
    // In the order of their arrival, with what was said.
    EXPECT_THAT(tokens[0], HasSubstr("abcxy"));
    EXPECT_EQ(gateway_->requests().num_replays, 2u);
    say_text(2, ids[0], "zw");
    say_end(2, ids[0]);
    expect_answer(client, 1, client::Response::kFinished);
    EXPECT_EQ(client.text(1), "xyzw");
    EXPECT_EQ(gateway_->num_failed(), 0u);
}

// Goal: who asks hears the steps and the end; a refusal is an error and nothing more.
TEST_F(GatewayResizeTest, WhoAsksHearsHowItGoesOn) {
    TestClient client(loop_, *gateway_);
    instance_.resize_refusal = "another is under way";
    client.send(resize(1, 3, 2));
    expect_answer(client, 1, client::Response::kError);
    EXPECT_EQ(client.last(1)->error().message(), "another is under way");
    instance_.resize_refusal.clear();
    client.send(resize(2, 3, 2));
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.resizes.size() == 1; }));
    EXPECT_EQ(instance_.resizes[0].attention_workers(), 3u);
    EXPECT_EQ(instance_.resizes[0].ffn_workers(), 2u);
    gateway_->tell_change("starting");
    expect_answer(client, 2, client::Response::kProgress);
    EXPECT_EQ(client.last(2)->progress().text(), "starting");
    client::Response resized;
    resized.mutable_resized()->set_ffn_workers(2);
    gateway_->end_change(resized);
    expect_answer(client, 2, client::Response::kResized);
    EXPECT_EQ(client.last(2)->resized().ffn_workers(), 2u);

    // One that goes away hears nothing, and the next one its own.
    TestClient hasty(loop_, *gateway_);
    hasty.send(resize(3, 1, 0));
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.resizes.size() == 2; }));
    hasty.close();
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->num_connections() == 1; }));
    gateway_->end_change(Error{Code::kUnavailable, "it cannot"});
    client.send(resize(4, 1, 0));
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.resizes.size() == 3; }));
    gateway_->end_change(Error{Code::kUnavailable, "it cannot"});
    expect_answer(client, 4, client::Response::kError);
}

TEST_F(GatewayResizeTest, ADrainCannotBeResized) {
    TestClient client(loop_, *gateway_);
    // So that the drain does not end at once.
    gateway_->on_attention_ready(0, 1024);
    client.send(generate(1, "abc", 2));
    next_sent();
    gateway_->drain();
    client.send(resize(2, 3, 2));
    expect_answer(client, 2, client::Response::kError);
    EXPECT_EQ(client.last(2)->error().code(), static_cast<uint32_t>(Code::kFailedPrecondition));
    EXPECT_THAT(client.last(2)->error().message(), HasSubstr("afdd is draining"));
    EXPECT_TRUE(instance_.resizes.empty());
}

}  // namespace
}  // namespace afd::daemon
