// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/metrics_image.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/metrics/metrics.h"

namespace afd::daemon {
namespace {

constexpr size_t kLaneWords = 8;

struct Segment {
    std::vector<uint64_t> words =
        std::vector<uint64_t>(schedule::kMetricsLanesOffset / sizeof(uint64_t) + kLaneWords);

    std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
    Metrics metrics() { return Metrics(bytes()); }
};

// Goal: what is counted on one host is read on another, and nothing else of the segment is touched.
// Method: everything of a segment differs from zero. Oracle: word by word.
TEST(MetricsImage, CarriesAllButTheTrace) {
    Segment from;
    for (size_t i = 0; i < from.words.size(); ++i) from.words[i] = i + 1;
    Segment to;
    ASSERT_TRUE(store_metrics_image(metrics_image(from.bytes()), to.bytes()));
    for (size_t i = 0; i < from.words.size(); ++i) {
        const size_t offset = i * sizeof(uint64_t);
        const bool is_switch =
            offset >= schedule::kTraceSwitchOffset && offset < schedule::kMetricsHistogramsOffset;
        const bool is_trace =
            offset >= schedule::kTraceHeadOffset && offset < schedule::kMetricsLanesOffset;
        ASSERT_EQ(to.words[i], is_switch || is_trace ? 0 : i + 1) << "at byte " << offset;
    }
    EXPECT_EQ(to.metrics().get(Counter::kRounds), from.metrics().get(Counter::kRounds));
}

TEST(MetricsImage, OfAnotherSizeIsNotStored) {
    Segment segment;
    std::string image = metrics_image(segment.bytes());
    segment.metrics().set(Counter::kTokens, 7);
    image += "12345678";
    EXPECT_FALSE(store_metrics_image(image, segment.bytes()));
    EXPECT_FALSE(store_metrics_image(image.substr(0, 16), segment.bytes()));
    EXPECT_FALSE(store_metrics_image("", segment.bytes()));
    EXPECT_EQ(segment.metrics().get(Counter::kTokens), 7U);
}

}  // namespace
}  // namespace afd::daemon
