// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpMetrics: requests of HTTP as their clients see them: how many were answered with what, and
// how long it took. Labels are of a fixed set, whatever clients send.

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "daemon/metrics/bucket_histogram.h"

namespace afd::daemon {

class HttpMetrics {
  public:
    struct Kind {
        std::string handler;  // "/v1/completions"; "none": no path that is served.
        std::string method;   // "GET", ...; "other".
        int code = 0;         // Status; 499: the client went away before the end.

        friend auto operator<=>(const Kind&, const Kind&) = default;
    };

    // A request was answered in full, or its client went away before (499). `seconds`: since it was
    // read; 0 of what was no request.
    void on_answered(std::string_view handler, std::string_view method, int code, double seconds) {
        const bool is_known =
            method == "GET" || method == "POST" || method == "HEAD" || method == "OPTIONS";
        ++counts_[{std::string(handler), is_known ? std::string(method) : "other", code}];
        const auto at = durations_.find(handler);
        BucketHistogram& times =
            at != durations_.end()
                ? at->second
                : durations_.emplace(std::string(handler), BucketHistogram(bounds())).first->second;
        times.record(seconds);
    }

    // A completion asks for `num_choices` choices of each prompt.
    void on_asked(uint32_t num_choices) { choices_.record(num_choices); }

    const std::map<Kind, uint64_t>& counts() const { return counts_; }
    const BucketHistogram& choices() const { return choices_; }
    // By handler.
    const std::map<std::string, BucketHistogram, std::less<>>& durations() const {
        return durations_;
    }

  private:
    // Those of the exporter that vLLM uses, with finer ones below.
    static std::vector<double> bounds() {
        return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                0.075,  0.1,     0.25,   0.5,   0.75,   1,     1.5,  2,     2.5,
                3,      3.5,     4,      4.5,   5,      7.5,   10,   30,    60};
    }

    std::map<Kind, uint64_t> counts_;
    BucketHistogram choices_{{1, 2, 5, 10, 20}};  // vLLM's.
    std::map<std::string, BucketHistogram, std::less<>> durations_;
};

}  // namespace afd::daemon
