// SPDX-License-Identifier: Apache-2.0
//
// Goal: what is shown of a link is what the link has. Method: two meters with clocks that differ,
// and a link of known delay and bandwidth between them, in simulated time. Oracle: these numbers.

#include "schedule/ucx/ucx_link_meter.h"

#include <gtest/gtest.h>

namespace afd::schedule {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// The session's end, the rank's, and the time; what is sent arrives after the delay.
class SimulatedLink {
  public:
    explicit SimulatedLink(uint64_t delay_ns) : delay_ns_(delay_ns) {}

    // The rank hears a heartbeat, and says one of its own `held_ns` later.
    void beat(uint64_t held_ns) {
        const UcxBeatTimes there = session_.beat(now_ns_);
        now_ns_ += delay_ns_;
        rank_.on_beat(there, rank_now());
        now_ns_ += held_ns;
        const UcxBeatTimes back = rank_.beat(rank_now());
        now_ns_ += delay_ns_;
        session_.on_beat(back, now_ns_);
    }
    void probe(uint64_t bytes_per_s) {
        session_.on_probe(now_ns_);
        const uint64_t sent_ns = now_ns_;
        now_ns_ += 2 * delay_ns_ + UcxLinkMeter::kProbeBytes * kSecond / bytes_per_s;
        session_.on_answer(sent_ns, now_ns_);
    }
    void wait(uint64_t ns) { now_ns_ += ns; }
    void set_delay(uint64_t ns) { delay_ns_ = ns; }
    UcxLinkMeter& session() { return session_; }
    uint64_t now_ns() const { return now_ns_; }

  private:
    uint64_t rank_now() const { return now_ns_ + 12345 * kSecond; }

    uint64_t delay_ns_;
    uint64_t now_ns_ = 77 * kSecond;
    UcxLinkMeter session_;
    UcxLinkMeter rank_;
};

TEST(UcxLinkMeter, LatencyIsHalfOfTheShortestRoundTrip) {
    SimulatedLink link(20 * kUs);
    EXPECT_EQ(link.session().view().latency_ns, 0U);
    link.beat(3 * kMs);
    link.beat(95 * kMs);
    EXPECT_EQ(link.session().view().latency_ns, 20 * kUs);
    link.set_delay(500 * kUs);
    link.beat(3 * kMs);
    EXPECT_EQ(link.session().view().latency_ns, 20 * kUs) << "the shortest";
}

TEST(UcxLinkMeter, LatencyIsThatOfTheLastSeconds) {
    SimulatedLink link(20 * kUs);
    link.beat(3 * kMs);
    link.set_delay(500 * kUs);
    for (int i = 0; i < 11; ++i) {
        link.wait(kSecond);
        link.beat(3 * kMs);
    }
    EXPECT_EQ(link.session().view().latency_ns, 500 * kUs);
}

TEST(UcxLinkMeter, BandwidthIsWhatAProbeTakesBeyondARoundTrip) {
    SimulatedLink link(200 * kUs);
    EXPECT_FALSE(link.session().wants_probe(link.now_ns())) << "before the latency is known";
    link.beat(3 * kMs);
    for (const uint64_t bytes_per_s : {90'000'000U, 125'000'000U, 60'000'000U}) {
        ASSERT_TRUE(link.session().wants_probe(link.now_ns()));
        link.probe(bytes_per_s);
        EXPECT_FALSE(link.session().wants_probe(link.now_ns())) << "one a second";
        link.wait(kSecond);
        link.beat(3 * kMs);
    }
    EXPECT_NEAR(static_cast<double>(link.session().view().bytes_per_s), 125e6, 1e4);
    EXPECT_FALSE(link.session().wants_probe(link.now_ns())) << "one a minute, then";
    for (int minute = 0; minute < 3; ++minute) {
        link.wait(60 * kSecond);
        link.beat(3 * kMs);
        ASSERT_TRUE(link.session().wants_probe(link.now_ns()));
        link.probe(50'000'000);
    }
    EXPECT_NEAR(static_cast<double>(link.session().view().bytes_per_s), 50e6, 1e4)
        << "of the last three";
}

TEST(UcxLinkMeter, AProbeEndsWithItsConnection) {
    SimulatedLink link(200 * kUs);
    link.beat(3 * kMs);
    UcxLinkMeter& meter = link.session();
    meter.on_probe(link.now_ns());
    EXPECT_TRUE(meter.is_probing(link.now_ns()));
    meter.on_closed();
    EXPECT_FALSE(meter.is_probing(link.now_ns()));
    meter.on_answer(link.now_ns(), link.now_ns() + kMs);
    EXPECT_EQ(meter.view().bytes_per_s, 0U) << "an answer of before";
}

// Goal: an answer that never comes ends no probing: links are probed one after the other. Oracle:
// when the meter wants the next one, and that it takes the late answer for nothing.
TEST(UcxLinkMeter, AProbeWithoutAnAnswerIsGivenUp) {
    SimulatedLink link(200 * kUs);
    link.beat(3 * kMs);
    UcxLinkMeter& meter = link.session();
    const uint64_t sent_ns = link.now_ns();
    meter.on_probe(sent_ns);
    link.wait(UcxLinkMeter::kAnswerNs - 1);
    link.beat(0);
    EXPECT_TRUE(meter.is_probing(sent_ns + UcxLinkMeter::kAnswerNs - 1));
    EXPECT_FALSE(meter.wants_probe(sent_ns + UcxLinkMeter::kAnswerNs - 1));
    EXPECT_FALSE(meter.is_probing(link.now_ns()));
    EXPECT_TRUE(meter.wants_probe(link.now_ns()));
    meter.on_answer(sent_ns, link.now_ns());
    EXPECT_EQ(meter.view().bytes_per_s, 0U);
    link.probe(125'000'000);
    EXPECT_NEAR(static_cast<double>(meter.view().bytes_per_s), 125e6, 1e4);
}

// What a peer may say; nothing of it divides by nothing or comes out below nothing.
TEST(UcxLinkMeter, TakesNoTimesThatCannotBe) {
    UcxLinkMeter meter;
    const uint64_t now_ns = 77 * kSecond;
    meter.on_beat({1, now_ns + 1, 0}, now_ns);
    meter.on_beat({1, now_ns - 5, 5}, now_ns);
    meter.on_beat({1, now_ns - 5, ~uint64_t{0}}, now_ns);
    meter.on_beat({~uint64_t{0}, 0, 0}, now_ns);
    EXPECT_EQ(meter.view().latency_ns, 0U);
    meter.on_beat({1, now_ns - 10, 4}, now_ns);
    EXPECT_EQ(meter.view().latency_ns, 3U);
    meter.on_probe(now_ns);
    meter.on_answer(now_ns - 1, now_ns + kMs);
    EXPECT_TRUE(meter.is_probing(now_ns)) << "an answer to another probe";
    meter.on_answer(now_ns, now_ns);
    EXPECT_FALSE(meter.is_probing(now_ns));
    EXPECT_EQ(meter.view().bytes_per_s, 0U) << "in no time";
}

// An end that slept when the round trip was measured, and was awake for the probe.
TEST(UcxLinkMeter, AProbeThatIsHardlySlowerThanARoundTripSaysNothing) {
    SimulatedLink link(500 * kUs);
    link.beat(3 * kMs);
    for (const uint64_t delay_us : {350, 480}) {
        link.set_delay(delay_us * kUs);
        link.probe(5'000'000'000);
        EXPECT_EQ(link.session().view().bytes_per_s, 0U) << delay_us;
        link.wait(kSecond);
        EXPECT_TRUE(link.session().wants_probe(link.now_ns())) << "again";
    }
    link.set_delay(20 * kUs);
    link.beat(3 * kMs);
    link.probe(5'000'000'000);
    EXPECT_NEAR(static_cast<double>(link.session().view().bytes_per_s), 5e9, 1e6);
}

TEST(UcxLinkMeter, AWayThatNeverSaysAnythingIsAskedOnceAMinuteInTheEnd) {
    SimulatedLink link(10 * kMs);
    int num_probes = 0;
    for (int second = 0; second < 300; ++second) {
        link.beat(3 * kMs);
        if (link.session().wants_probe(link.now_ns())) {
            link.probe(5'000'000'000);
            ++num_probes;
        }
        link.wait(kSecond);
    }
    EXPECT_EQ(link.session().view().bytes_per_s, 0U);
    EXPECT_GE(num_probes, 10 + 3);
    EXPECT_LE(num_probes, 10 + 5);
}

}  // namespace
}  // namespace afd::schedule
