// SPDX-License-Identifier: Apache-2.0
#pragma once

// FamilyList: metric families as they are collected for one scrape, and their text. A family is
// declared once, with its help, and then gets a value for each set of labels; it is in the text
// also without a value, so that the text says which families there are.
//
// The text is Prometheus' format, version 0.0.4.

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/metrics/bucket_histogram.h"
#include "daemon/metrics/metric_histogram.h"

namespace afd::daemon {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class FamilyList {
  public:
    // `common`: labels of every value.
    explicit FamilyList(MetricLabels common) : common_(std::move(common)) {}

    // Declare the family that the following values belong to. `vllm`: the name that vLLM has for
    // it, without its prefix; empty: none.
    void counter(const std::string& name, const std::string& help, const std::string& vllm = "");
    void gauge(const std::string& name, const std::string& help, const std::string& vllm = "");
    void histogram(const std::string& name, const std::string& help, const std::string& vllm = "");

    // Adds a value to the family that was declared last.
    void value(const MetricLabels& labels, double value);
    void value(double value_only) { value({}, value_only); }
    void distribution(const MetricLabels& labels, const BucketHistogram& histogram);
    // Nanoseconds as seconds, with a bound for each doubling from 1 us to 17 s.
    void seconds(const MetricLabels& labels, const HistogramCounts& counts);
    // Numbers of things, with the bounds 1, 3, 7, ..., 8191.
    void numbers(const MetricLabels& labels, const HistogramCounts& counts);

    // `with_vllm`: and each family that vLLM has, again under its name.
    std::string text(bool with_vllm) const;

  private:
    void declare(prometheus::MetricType type,
                 const std::string& name,
                 const std::string& help,
                 const std::string& vllm);
    prometheus::ClientMetric& add(const MetricLabels& labels);

    MetricLabels common_;
    std::vector<prometheus::MetricFamily> families_;
    std::vector<std::string> vllm_names_;  // Of each family; empty: none.
};

}  // namespace afd::daemon
