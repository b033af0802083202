// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/metrics_image.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "proto/check.h"
#include "schedule/layout/metrics_layout.h"

namespace afd::daemon {

namespace {

// Bytes of the segment, from and to.
struct Part {
    uint64_t begin;
    uint64_t end;
};

std::array<Part, 3> counted_parts(size_t segment_bytes) {
    AFD_ASSERT(segment_bytes >= schedule::kMetricsLanesOffset && segment_bytes % 8 == 0,
               "a metrics segment of %zu bytes",
               segment_bytes);
    return {{{0, schedule::kTraceSwitchOffset},
             {schedule::kMetricsHistogramsOffset, schedule::kTraceHeadOffset},
             {schedule::kMetricsLanesOffset, segment_bytes}}};
}

size_t image_bytes(size_t segment_bytes) {
    size_t sum = 0;
    for (const Part& part : counted_parts(segment_bytes)) sum += part.end - part.begin;
    return sum;
}

}  // namespace

std::string metrics_image(std::span<const std::byte> segment) {
    std::string image(image_bytes(segment.size()), '\0');
    char* to = image.data();
    for (const Part& part : counted_parts(segment.size())) {
        for (uint64_t offset = part.begin; offset < part.end; offset += sizeof(uint64_t)) {
            auto& word =
                *const_cast<uint64_t*>(reinterpret_cast<const uint64_t*>(segment.data() + offset));
            // Relaxed: a count that orders nothing; partner is the store of Metrics.
            const uint64_t value = std::atomic_ref(word).load(std::memory_order_relaxed);
            std::memcpy(to, &value, sizeof(value));
            to += sizeof(value);
        }
    }
    return image;
}

bool store_metrics_image(std::string_view image, std::span<std::byte> segment) {
    if (image.size() != image_bytes(segment.size())) return false;
    const char* from = image.data();
    for (const Part& part : counted_parts(segment.size())) {
        for (uint64_t offset = part.begin; offset < part.end; offset += sizeof(uint64_t)) {
            uint64_t value = 0;
            std::memcpy(&value, from, sizeof(value));
            from += sizeof(value);
            // Relaxed: partner is the load of Metrics.
            std::atomic_ref(*reinterpret_cast<uint64_t*>(segment.data() + offset))
                .store(value, std::memory_order_relaxed);
        }
    }
    return true;
}

}  // namespace afd::daemon
