// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatewayCounters: what the gateway has served since its afdd started. Neither a resize nor the
// death of a worker takes anything back; an upgraded afdd begins at 0. All on afdd's loop.
//
// Of requests to generate. One that is not accepted is refused. An accepted one is finished, when
// it stops, has its length or is cancelled, or else has failed, when its client is told the error:
// one that its worker has not let go of yet has failed, too, and does not finish later. Tokens
// count as they come from a worker; a replay and one that gave way repeat none.

#include <unistd.h>

#include <cstdint>

#include "daemon/loop/event_loop.h"
#include "daemon/metrics/rate_meter.h"
#include "daemon/metrics/request_metrics.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class GatewayCounters {
  public:
    GatewayCounters(const EventLoop& loop, uint32_t context_length)
        : loop_(loop), started_ms_(loop.now_ms()), requests_(context_length) {}

    // `moments`: those before the token.
    void count_token(const RequestMoments& moments, uint64_t now_us) {
        requests_.on_token(moments, now_us);
        rate_.add(1, loop_.now_ms());
    }
    void count_finished() { ++num_finished_; }
    void count_failed(Code code) {
        ++num_failed_;
        requests_.on_failed(code);
    }

    // For what concerns a request and no count above: its times, and how it ended; refusals,
    // replays, those that gave way.
    RequestMetrics& requests() { return requests_; }
    const RequestMetrics& requests() const { return requests_; }
    uint64_t num_finished() const { return num_finished_; }
    uint64_t num_failed() const { return num_failed_; }

    void fill_status(client::Status& status) {
        status.set_uptime_ms(loop_.now_ms() - started_ms_);
        status.set_num_finished(num_finished_);
        status.set_num_failed(num_failed_);
        status.set_num_refused(requests_.num_refused());
        status.set_num_preemptions(requests_.num_preemptions);
        status.set_num_output_tokens(requests_.num_output_tokens);
        status.set_output_tokens_per_s(rate_.per_second(loop_.now_ms()));
    }

  private:
    const EventLoop& loop_;
    const uint64_t started_ms_;
    RateMeter rate_;
    RequestMetrics requests_;
    uint64_t num_finished_ = 0;
    uint64_t num_failed_ = 0;
};

}  // namespace afd::daemon
