// SPDX-License-Identifier: Apache-2.0
#include "daemon/exposition/family_list.h"

#include <prometheus/text_serializer.h>

#include <limits>

#include "proto/check.h"

namespace afd::daemon {
namespace {

constexpr double kNsPerSecond = 1e9;
// Edges of octaves are edges of buckets, so no count is split.
constexpr unsigned kFirstSecondsBit = 10;  // 1.024 us
constexpr unsigned kLastSecondsBit = 34;   // 17.2 s
constexpr unsigned kLastNumbersBit = 13;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void end_buckets(uint64_t count, double sum, prometheus::ClientMetric::Histogram& histogram) {
    histogram.bucket.push_back({count, kInfinity});
    histogram.sample_count = count;
    histogram.sample_sum = sum;
}

}  // namespace

void FamilyList::counter(const std::string& name,
                         const std::string& help,
                         const std::string& vllm) {
    AFD_ASSERT(name.ends_with("_total"), "the counter %s", name.c_str());
    declare(prometheus::MetricType::Counter, name, help, vllm);
}

void FamilyList::gauge(const std::string& name, const std::string& help, const std::string& vllm) {
    declare(prometheus::MetricType::Gauge, name, help, vllm);
}

void FamilyList::histogram(const std::string& name,
                           const std::string& help,
                           const std::string& vllm) {
    declare(prometheus::MetricType::Histogram, name, help, vllm);
}

void FamilyList::declare(prometheus::MetricType type,
                         const std::string& name,
                         const std::string& help,
                         const std::string& vllm) {
    families_.push_back({name, help, type, {}});
    vllm_names_.push_back(vllm);
}

prometheus::ClientMetric& FamilyList::add(const MetricLabels& labels) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    for (const MetricLabels* some : {static_cast<const MetricLabels*>(&common_), &labels}) {
        for (const auto& [name, label] : *some) metric.label.push_back({name, label});
    }
    return metric;
}

void FamilyList::value(const MetricLabels& labels, double value) {
    prometheus::ClientMetric& metric = add(labels);
    if (families_.back().type == prometheus::MetricType::Counter) {
        metric.counter.value = value;
    } else {
        metric.gauge.value = value;
    }
}

void FamilyList::distribution(const MetricLabels& labels, const BucketHistogram& histogram) {
    prometheus::ClientMetric::Histogram& to = add(labels).histogram;
    uint64_t count = 0;
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
        count += histogram.counts()[i];
        to.bucket.push_back({count, histogram.bounds()[i]});
    }
    end_buckets(count + histogram.counts().back(), histogram.sum(), to);
}

void FamilyList::seconds(const MetricLabels& labels, const HistogramCounts& counts) {
    prometheus::ClientMetric::Histogram& to = add(labels).histogram;
    for (unsigned bit = kFirstSecondsBit; bit <= kLastSecondsBit; ++bit) {
        const uint64_t edge = uint64_t{1} << bit;
        to.bucket.push_back({counts.count_below(edge), static_cast<double>(edge) / kNsPerSecond});
    }
    end_buckets(counts.count, static_cast<double>(counts.sum) / kNsPerSecond, to);
}

void FamilyList::numbers(const MetricLabels& labels, const HistogramCounts& counts) {
    prometheus::ClientMetric::Histogram& to = add(labels).histogram;
    for (unsigned bit = 1; bit <= kLastNumbersBit; ++bit) {
        const uint64_t edge = uint64_t{1} << bit;
        // Whole numbers: below the edge is at most one less.
        to.bucket.push_back({counts.count_below(edge), static_cast<double>(edge - 1)});
    }
    end_buckets(counts.count, static_cast<double>(counts.sum), to);
}

std::string FamilyList::text(bool with_vllm) const {
    std::vector<prometheus::MetricFamily> all = families_;
    for (size_t i = 0; with_vllm && i < families_.size(); ++i) {
        if (vllm_names_[i].empty()) continue;
        all.push_back(families_[i]);
        all.back().name = "vllm:" + vllm_names_[i];
    }
    return prometheus::TextSerializer().Serialize(all);
}

}  // namespace afd::daemon
