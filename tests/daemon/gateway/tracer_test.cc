// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gateway/gateway.h"
#include "daemon/metrics/metrics.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

// A gateway and the rings of two workers that the test writes.
class TracerTest : public testing::Test {
  protected:
    TracerTest() : tokenizer_(make_byte_tokenizer()) {
        config_.attention_workers = 1;
        config_.connections_max = 10;
        config_.output_buffer_kib = 64;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_,
            config_,
            model,
            std::vector<TraceSource>{{"attention", 0, ring(0)}, {"ffn", 3, ring(1)}},
            instance_,
            instance_);
    }

    TraceRing ring(size_t worker) {
        return Metrics(std::as_writable_bytes(std::span(segments_[worker]))).trace();
    }

    static client::Request trace(uint64_t request_id, uint32_t duration_ms) {
        client::Request request;
        request.set_request_id(request_id);
        request.mutable_trace()->set_duration_ms(duration_ms);
        return request;
    }

    static client::Request cancel(uint64_t target) {
        client::Request request;
        request.set_request_id(8);
        request.mutable_cancel()->set_target(target);
        return request;
    }

    void fill_rings() {
        for (const size_t worker : {0, 1}) {
            for (uint64_t i = 1; i <= schedule::kTraceEvents; ++i) {
                ring(worker).record({.start_ns = uint64_t{1} << 60,
                                     .duration_ns = uint64_t{1} << 60,
                                     .kind = TraceKind::kExperts});
            }
        }
    }

    static uint64_t num_told(const TestClient& client) {
        uint64_t count = 0;
        for (const client::Response& response : client.answers) {
            count += static_cast<uint64_t>(response.trace_events().events_size());
        }
        return count;
    }
    static uint64_t num_lost(const TestClient& client) {
        uint64_t count = 0;
        for (const client::Response& response : client.answers) {
            count += response.trace_events().num_lost();
        }
        return count;
    }

    const client::Response& wait_for(TestClient& client,
                                     uint64_t request_id,
                                     client::Response::BodyCase body) {
        EXPECT_TRUE(run_until(loop_, [&] {
            client.receive();
            const auto* last = client.last(request_id);
            return last != nullptr && last->body_case() == body;
        }));
        return *client.last(request_id);
    }

    static constexpr size_t kWords = schedule::kMetricsLanesOffset / sizeof(uint64_t);
    std::vector<std::vector<uint64_t>> segments_{2, std::vector<uint64_t>(kWords)};
    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
};

TEST_F(TracerTest, TurnsTheWorkersOnAndStreamsWhatTheyDo) {
    ring(1).record({.start_ns = 1});  // Before the trace: nobody asked for it.
    TestClient client(loop_, *gateway_);
    client.send(trace(7, 60'000));
    ASSERT_TRUE(run_until(loop_, [&] { return ring(0).is_on() && ring(1).is_on(); }));
    ring(1).record({.start_ns = 5,
                    .duration_ns = 6,
                    .kind = TraceKind::kExperts,
                    .micro_batch = 2,
                    .session = 4,
                    .layer = 8,
                    .num_rows = 9,
                    .round = 10});
    const client::TraceEvents& events =
        wait_for(client, 7, client::Response::kTraceEvents).trace_events();
    EXPECT_EQ(events.role(), "ffn");
    EXPECT_EQ(events.index(), 3u);
    EXPECT_EQ(events.num_lost(), 0u);
    ASSERT_EQ(events.events_size(), 1);
    EXPECT_EQ(events.events(0).ShortDebugString(),
              "name: \"experts\" start_ns: 5 duration_ns: 6 session: 4 micro_batch: 2 layer: 8 "
              "round: 10 num_rows: 9");

    // A Cancel ends it, with what came meanwhile.
    ring(0).record({.start_ns = 11, .kind = TraceKind::kWait});
    client.send(cancel(7));
    wait_for(client, 7, client::Response::kDone);
    EXPECT_FALSE(ring(0).is_on());
    EXPECT_FALSE(ring(1).is_on());
    EXPECT_EQ(num_told(client), 2u);
}

// Goal: who reads is told everything, however much there is at once, and is not taken for one who
// does not read. Method: two full rings, and a queue that is bounded by less; while the trace runs,
// and when it is over. Oracle: the connection lives, and all events came.
TEST_F(TracerTest, WhatIsTooMuchAtOnceIsToldBatchByBatch) {
    for (const uint32_t duration_ms : {1000U, 60'000U}) {
        TestClient client(loop_, *gateway_);
        client.send(trace(7, duration_ms));
        ASSERT_TRUE(run_until(loop_, [&] { return ring(0).is_on() && ring(1).is_on(); }));
        fill_rings();
        if (duration_ms > 1000) client.send(cancel(7));
        wait_for(client, 7, client::Response::kDone);
        EXPECT_EQ(num_told(client), 2 * schedule::kTraceEvents);
        EXPECT_EQ(num_lost(client), 0U);
        EXPECT_FALSE(ring(0).is_on());
    }
}

// Goal: a client that does not read holds nobody up, and learns what it has missed. Method: the
// rings hold more than its connection; it reads long after the end. Oracle: the counts.
TEST_F(TracerTest, WhatNobodyReadsAfterTheEndIsCounted) {
    TestClient client(loop_, *gateway_, nullptr, 16 << 10);
    client.send(trace(7, 60'000));
    ASSERT_TRUE(run_until(loop_, [&] { return ring(0).is_on() && ring(1).is_on(); }));
    fill_rings();
    client.send(cancel(7));
    TestClient other(loop_, *gateway_);
    // It is refused as long as the first one's is not over.
    uint64_t num_asked = 0;
    ASSERT_TRUE(run_until(loop_, [&] {
        other.receive();
        const bool is_done = !other.answers.empty() && other.answers.back().has_done();
        if (!is_done && other.answers.size() == num_asked) other.send(trace(++num_asked, 1));
        return is_done;
    }));
    wait_for(client, 7, client::Response::kDone);
    EXPECT_GE(num_told(client), 512U);
    EXPECT_GE(num_lost(client), 1U);
    EXPECT_EQ(num_told(client) + num_lost(client), 2 * schedule::kTraceEvents);
}

TEST_F(TracerTest, EndsByItself) {
    TestClient client(loop_, *gateway_);
    client.send(trace(1, 20));
    wait_for(client, 1, client::Response::kDone);
    EXPECT_FALSE(ring(0).is_on());
}

TEST_F(TracerTest, OneClientAtATimeAndWhoLeavesTurnsItOff) {
    TestClient first(loop_, *gateway_);
    TestClient second(loop_, *gateway_);
    first.send(trace(1, 60'000));
    ASSERT_TRUE(run_until(loop_, [&] { return ring(0).is_on(); }));
    second.send(trace(2, 1000));
    const client::Error& refusal = wait_for(second, 2, client::Response::kError).error();
    EXPECT_EQ(refusal.code(), static_cast<uint32_t>(Code::kUnavailable));
    EXPECT_THAT(refusal.message(), HasSubstr("another client is tracing this instance, for "));
    EXPECT_TRUE(ring(0).is_on());
    first.close();
    ASSERT_TRUE(run_until(loop_, [&] { return !ring(0).is_on(); }));
    second.send(trace(3, 20));
    wait_for(second, 3, client::Response::kDone);
}

TEST_F(TracerTest, DurationsOutOfRangeAreRefused) {
    TestClient client(loop_, *gateway_);
    client.send(trace(1, 0));
    EXPECT_EQ(wait_for(client, 1, client::Response::kError).error().message(),
              "a trace of 0 ms: 1 to 600000 are possible");
    client.send(trace(2, 600'001));
    EXPECT_EQ(wait_for(client, 2, client::Response::kError).error().message(),
              "a trace of 600001 ms: 1 to 600000 are possible");
    EXPECT_FALSE(ring(0).is_on());
}

}  // namespace
}  // namespace afd::daemon
