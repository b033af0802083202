// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatewayCounters: what the gateway has served since it started. All on afdd's loop.

#include <unistd.h>

#include <cstdint>

#include "daemon/loop/event_loop.h"
#include "daemon/metrics/rate_meter.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class GatewayCounters {
  public:
    explicit GatewayCounters(const EventLoop& loop) : loop_(loop), started_ms_(loop.now_ms()) {}

    void count_token() {
        ++num_output_tokens_;
        rate_.add(1, loop_.now_ms());
    }
    void count_finished() { ++num_finished_; }
    void count_failed() { ++num_failed_; }

    uint64_t num_finished() const { return num_finished_; }
    uint64_t num_failed() const { return num_failed_; }

    void fill_status(client::Status& status) {
        status.set_uptime_ms(loop_.now_ms() - started_ms_);
        status.set_num_finished(num_finished_);
        status.set_num_failed(num_failed_);
        status.set_num_output_tokens(num_output_tokens_);
        status.set_output_tokens_per_s(rate_.per_second(loop_.now_ms()));
    }

  private:
    const EventLoop& loop_;
    const uint64_t started_ms_;
    RateMeter rate_;
    uint64_t num_finished_ = 0;
    uint64_t num_failed_ = 0;
    uint64_t num_output_tokens_ = 0;
};

}  // namespace afd::daemon
