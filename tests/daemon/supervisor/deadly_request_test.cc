// SPDX-License-Identifier: Apache-2.0
//
// A request of which every attention worker dies, beside others. Goal: it ends, nobody else does,
// and the instance serves on. Method: real processes that abort when they are given it; a
// supervisor that calls a worker a failure after few deaths in a row. Oracle: the texts of the
// others, and the state at every moment.

#include <string>

#include "tests/daemon/attention/fake_token.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

class DeadlyRequestTest : public SupervisorTest, public testing::WithParamInterface<uint64_t> {
  protected:
    DeadlyRequestTest() {
        config_.attention_workers = GetParam();
        // And R11's three more.
        config_.start_attempts = 1;
    }

    static bool has_ended(const TestClient& client, uint64_t id) {
        const client::Response* last = client.last(id);
        return last != nullptr && (last->has_finished() || last->has_error());
    }
};

INSTANTIATE_TEST_SUITE_P(AttentionWorkers, DeadlyRequestTest, testing::Values(1, 2));

TEST_P(DeadlyRequestTest, EndsAndNobodyElseDoes) {
    constexpr uint32_t kTokens = 200;
    constexpr uint64_t kDeadly = 4;
    const ScopedVariable slow("AFD_FAKE_TOKEN_MS", "2");
    const ScopedVariable deadly("AFD_FAKE_DEADLY", std::to_string('!').c_str());
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    TestClient client(loop_, *gateway_);
    for (const uint64_t id : {1, 2, 3}) client.send(generate(id, "abc", kTokens));
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.text(3).size() > 3;
    }));
    client.send(generate(kDeadly, "a!c", kTokens));
    client.send(generate(5, "abc", kTokens));
    std::string states;
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        const std::string state = status().state();
        if (!states.ends_with(state)) states += " " + state;
        for (uint64_t id = 1; id <= 5; ++id) {
            if (!has_ended(client, id)) return false;
        }
        return true;
    }));
    EXPECT_EQ(states, " ready");
    EXPECT_THAT(client.last(kDeadly)->error().message(),
                HasSubstr("the last one on nothing else (attention worker"));
    EXPECT_THAT(client.last(kDeadly)->error().message(), HasSubstr("killed by signal 6"));
    for (const uint64_t id : {1, 2, 3, 5}) {
        EXPECT_EQ(client.text(id), fake_text(3, 3, kTokens)) << "request " << id;
    }
    EXPECT_EQ(gateway_->num_failed(), 1U);
    EXPECT_EQ(gateway_->requests().num_deadly, 1U);
    ASSERT_TRUE(run_until(loop_, [&] { return supervisor_->is_complete(); }));
    client.send(generate(6, "abc", 5));
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return has_ended(client, 6);
    }));
    EXPECT_EQ(client.text(6), fake_text(3, 3, 5));
    EXPECT_EQ(program_.given_up, "");
}

}  // namespace
}  // namespace afd::daemon
