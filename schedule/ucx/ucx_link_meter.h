// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxLinkMeter: latency, bandwidth and bytes of one link, as its session's end sees them.
//
// Latency comes with the heartbeats: each says when it left, which one of the peer's it has heard
// last, and for how long that has lain here. So a round trip is known without a message of its own,
// and without clocks that agree. Bandwidth is asked for: a probe of kProbeBytes goes to the rank,
// which answers it, and what that takes beyond a round trip is the time of its bytes. If that is
// next to nothing, it says nothing: the round trip was that of somebody who slept, or the way is so
// long that its bytes are lost in it.
//
// What the peer says is its word: a wrong one spoils what is shown of its own link. Nothing here
// allocates. Guarded by the lock of the UcxWorker.

#include <array>
#include <cstddef>
#include <cstdint>

#include "schedule/transport/link_view.h"

namespace afd::schedule {

// Goes with a heartbeat. All by the clock of whoever is meant, ns.
struct UcxBeatTimes {
    uint64_t sent_ns = 0;     // By the sender's clock.
    uint64_t answers_ns = 0;  // sent_ns of the last one that it has heard; 0: none.
    uint64_t held_ns = 0;     // Since it has heard that one.
};

class UcxLinkMeter {
  public:
    // A probe that takes longer is given up: the link is broken or full, and others wait their
    // turn.
    static constexpr uint64_t kAnswerNs = 10'000'000'000;
    // Of a link of 10 Gbit/s 0.2 ms, and more than UCX or a kernel takes at once.
    static constexpr size_t kProbeBytes = 256 << 10;

    // What goes with a heartbeat that leaves now, and what came with one.
    UcxBeatTimes beat(uint64_t now_ns) const;
    void on_beat(const UcxBeatTimes& times, uint64_t now_ns);

    // Whether the next probe is due: a second apart until three have said something, ten at most;
    // then one a minute. The latency is measured first.
    bool wants_probe(uint64_t now_ns) const;
    // An answer that takes longer than kAnswerNs is not waited for.
    bool is_probing(uint64_t now_ns) const;
    void on_probe(uint64_t now_ns);
    // The answer to the probe that was sent at `sent_ns`.
    void on_answer(uint64_t sent_ns, uint64_t now_ns);
    // The connection has ended, and what was on its way with it.
    void on_closed();

    void on_sent(size_t bytes) { bytes_sent_ += bytes; }
    void on_received(size_t bytes) { bytes_received_ += bytes; }

    LinkView view() const;

  private:
    uint64_t round_trip_ns() const;

    uint64_t heard_sent_ns_ = 0;  // Of the peer's last heartbeat, by its clock;
    uint64_t heard_ns_ = 0;       // and by our own one when that came.
    // The shortest round trip of a span of time, and of the one before; 0: none.
    uint64_t shortest_ns_ = 0;
    uint64_t last_shortest_ns_ = 0;
    uint64_t span_began_ns_ = 0;
    uint64_t probe_sent_ns_ = 0;  // Of the last probe, until its answer; 0: none is awaited.
    uint64_t next_probe_ns_ = 0;
    uint64_t num_probes_ = 0;
    uint64_t num_told_ = 0;                  // Of these, who said something.
    std::array<uint64_t, 3> bytes_per_s_{};  // Of the last ones; 0: nothing.
    uint64_t bytes_sent_ = 0;
    uint64_t bytes_received_ = 0;
};

}  // namespace afd::schedule
