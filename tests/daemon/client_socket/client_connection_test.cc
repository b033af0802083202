// SPDX-License-Identifier: Apache-2.0
//
// Connections of clients without a gateway: when the host hears which request.
#include "daemon/client_socket/client_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

// Notes what it hears, in order.
struct NotingHost final : SessionHost {
    void adopt(std::unique_ptr<ClientSession> session) override {
        sessions.push_back(std::move(session));
    }
    void on_request(ClientSession&, const client::Request& request) override {
        heard.push_back(request.request_id());
        if (request.has_generate()) text = request.generate().text();
    }
    void on_closed(ClientSession&) override { ++num_closed; }
    void on_progress(ClientSession&) override {}

    std::vector<uint64_t> heard;
    std::string text;
    int num_closed = 0;
    std::vector<std::unique_ptr<ClientSession>> sessions;
};

class ClientConnectionTest : public testing::Test {
  protected:
    static std::string status_frames(uint64_t first, uint64_t last) {
        std::string bytes;
        for (uint64_t id = first; id <= last; ++id) {
            client::Request request;
            request.set_request_id(id);
            request.mutable_status();
            append_frame(request, bytes);
        }
        return bytes;
    }

    EventLoop loop_;
    NotingHost host_;
};

// Goal: a client that sends thousands of requests at once does not hold the others. Method: its
// requests and one of another client wait before the loop turns. Oracle: how many of the first
// client's were heard before the other's; all are heard in the end, in their order.
TEST_F(ClientConnectionTest, ManyRequestsAtOnceDoNotHoldOtherClients) {
    constexpr uint64_t kOther = 1'000'000;
    constexpr uint64_t kMany = 2000;
    TestClient busy(loop_, host_);
    TestClient other(loop_, host_);
    busy.send_bytes(status_frames(1, kMany));
    other.send_bytes(status_frames(kOther, kOther));
    ASSERT_TRUE(run_until(loop_, [&] { return host_.heard.size() == kMany + 1; }));
    const auto at = std::find(host_.heard.begin(), host_.heard.end(), kOther);
    EXPECT_LE(at - host_.heard.begin(), 2 * TurnBudget::kMessagesMax);
    host_.heard.erase(at);
    EXPECT_TRUE(std::is_sorted(host_.heard.begin(), host_.heard.end()));
}

// Goal: a prompt that is not UTF-8 reaches the host, which refuses it alone; the connection goes
// on. It was closed, because protobuf refuses such a string.
TEST_F(ClientConnectionTest, PromptThatIsNotUtf8DoesNotCloseTheConnection) {
    TestClient client(loop_, host_);
    client.send(generate(1, "bad \xff\xfe", 1));
    client.send_bytes(status_frames(2, 2));
    ASSERT_TRUE(run_until(loop_, [&] { return host_.heard.size() == 2; }));
    EXPECT_EQ(host_.text, "bad \xff\xfe");
    EXPECT_EQ(host_.num_closed, 0);
}

// What was sent before the end of the stream is heard, also if it takes several turns.
TEST_F(ClientConnectionTest, RequestsBeforeTheEndOfTheStreamAreHeard) {
    TestClient client(loop_, host_);
    client.send_bytes(status_frames(1, 500));
    client.close();
    ASSERT_TRUE(run_until(loop_, [&] { return host_.num_closed == 1; }));
    EXPECT_EQ(host_.heard.size(), 500u);
}

}  // namespace
}  // namespace afd::daemon
