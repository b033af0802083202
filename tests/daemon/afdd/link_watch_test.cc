// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/link_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using testing::HasSubstr;

// Attention 0 here, attention 1 on host b, each with links to ffn 0 here and ffn 1 on b.
class LinkWatchTest : public testing::Test {
  protected:
    LinkWatchTest() {
        for (const char* role : {"attention", "ffn"}) {
            for (uint32_t index = 0; index < 2; ++index) {
                client::Worker& worker = *status_.add_workers();
                worker.set_role(role);
                worker.set_index(index);
                worker.set_state("ready");
                if (index == 1) worker.set_host("b");
                if (worker.role() == "ffn") continue;
                worker.add_links()->set_is_open(true);
                worker.add_links()->set_is_open(true);
            }
        }
        client::Host& host = *status_.add_hosts();
        host.set_name("b");
        host.set_address("10.0.0.2:41000");
    }

    void set_open(int session, int rank, bool is_open) {
        status_.mutable_workers(session)->mutable_links(rank)->set_is_open(is_open);
    }
    std::vector<LinkWatch::News> look(uint64_t now_ms) {
        return watch_.look(status_, "10.0.0.1", now_ms);
    }

    client::Status status_;
    LinkWatch watch_;
};

TEST_F(LinkWatchTest, ALinkThatStaysDownIsSaidOnceWithItsAddress) {
    set_open(1, 0, false);
    EXPECT_TRUE(look(1000).empty());
    EXPECT_TRUE(look(1000 + LinkWatch::kDownMs - 1).empty());
    EXPECT_EQ(watch_.reason(), "");
    const auto news = look(1000 + LinkWatch::kDownMs);
    ASSERT_EQ(news.size(), 1u);
    EXPECT_TRUE(news[0].is_down);
    EXPECT_EQ(
        news[0].text,
        "attention 1 on host 'b' cannot reach ffn 0 on this host (which listens at 10.0.0.1)");
    EXPECT_EQ(watch_.reason(), news[0].text);
    EXPECT_TRUE(look(50'000).empty());
}

TEST_F(LinkWatchTest, TheAddressOfAnotherHostIsWhereItJoinedFrom) {
    set_open(0, 1, false);
    look(0);
    const auto news = look(LinkWatch::kDownMs);
    ASSERT_EQ(news.size(), 1u);
    EXPECT_THAT(news[0].text,
                HasSubstr("cannot reach ffn 1 on host 'b' (which joined from 10.0.0.2)"));
}

TEST_F(LinkWatchTest, ALinkThatOpensIsNewsIfItsEndWas) {
    set_open(1, 0, false);
    look(0);
    set_open(1, 0, true);
    EXPECT_TRUE(look(5000).empty());
    set_open(1, 0, false);
    // Counted anew.
    EXPECT_TRUE(look(LinkWatch::kDownMs).empty());
    EXPECT_EQ(look(2 * LinkWatch::kDownMs).size(), 1u);
    set_open(1, 0, true);
    const auto news = look(3 * LinkWatch::kDownMs);
    ASSERT_EQ(news.size(), 1u);
    EXPECT_FALSE(news[0].is_down);
    EXPECT_EQ(watch_.reason(), "");
}

// Who waits for a worker that starts has no link to it, and the worker's state says why.
TEST_F(LinkWatchTest, NothingIsSaidOfLinksToWorkersThatDoNotServe) {
    set_open(1, 0, false);
    status_.mutable_workers(2)->set_state("starting");
    look(0);
    EXPECT_TRUE(look(60'000).empty());
    status_.mutable_workers(2)->set_state("ready");
    status_.mutable_workers(1)->set_state("back-off");
    look(60'000);
    EXPECT_TRUE(look(120'000).empty());
}

}  // namespace
}  // namespace afd::daemon
