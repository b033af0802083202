// SPDX-License-Identifier: Apache-2.0
#pragma once

// The image of metrics: what a worker has counted, as bytes for another host: every word of its
// metrics segment but the trace and its switch (schedule/layout/metrics_layout.h).

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace afd::daemon {

// REQUIRES: `segment` is a whole metrics segment. Each word is whole, but not all are of one
// moment.
std::string metrics_image(std::span<const std::byte> segment);

// Stores an image in another segment of the same size. False, and nothing is stored: it is no image
// of such a one.
bool store_metrics_image(std::string_view image, std::span<std::byte> segment);

}  // namespace afd::daemon
