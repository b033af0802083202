// SPDX-License-Identifier: Apache-2.0
//
// What the afdds of several hosts and their stand-ins say to each other. Input: bytes of a
// connection behind its TLS. They are read as frames of each of the four kinds of messages in turn;
// what a host sees of a worker is stored as its stand-in stores it. Oracle: an image that is
// refused changes nothing, one that is stored reads as it came, and neither touches the trace,
// which is the leader's own.

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/metrics/metrics_image.h"
#include "proto/check.h"
#include "proto/cluster.pb.h"
#include "proto/frame.h"
#include "schedule/context/heartbeat.h"
#include "schedule/layout/metrics_layout.h"
#include "tests/fuzz/fuzz_input.h"

namespace schedule = afd::schedule;

namespace {

using Segment = std::vector<std::byte>;

// What stands between the parts of a segment that are counts.
std::string trace_of(const Segment& segment) {
    const auto part = [&](uint64_t begin, uint64_t end) {
        return std::string(reinterpret_cast<const char*>(segment.data() + begin), end - begin);
    };
    return part(schedule::kTraceSwitchOffset, schedule::kMetricsHistogramsOffset) +
           part(schedule::kTraceHeadOffset, schedule::kMetricsLanesOffset);
}

Segment make_segment() {
    Segment segment(schedule::kMetricsLanesOffset);
    std::fill(segment.begin(), segment.end(), std::byte{7});
    return segment;
}

void store(const afd::cluster::Sight& sight) {
    static Segment segment = make_segment();
    static const std::string trace = trace_of(segment);
    const std::string before = afd::daemon::metrics_image(segment);
    const bool is_stored = afd::daemon::store_metrics_image(sight.counts(), segment);
    const std::string after = afd::daemon::metrics_image(segment);
    AFD_ASSERT(after == (is_stored ? sight.counts() : before), "another image than was stored");
    AFD_ASSERT(trace_of(segment) == trace, "an image changes the trace");
    schedule::HeartbeatImage image;
    if (sight.heartbeat().size() != sizeof(image)) return;
    std::memcpy(&image, sight.heartbeat().data(), sizeof(image));
    schedule::HeartbeatWords words;
    schedule::store_image(image, words);
    const auto view = schedule::read_heartbeat(words);
    AFD_ASSERT(view.progress == image.progress && view.pid == image.pid,
               "another heartbeat than was stored");
}

// Until the bytes are no such messages any more.
template <typename Message, typename Take>
void read_all(std::string_view bytes, Take&& take) {
    afd::FrameReader reader;
    reader.append({bytes.data(), bytes.size()});
    Message message;
    while (true) {
        const auto next = reader.next(message, "message");
        if (!next.ok() || !next.value()) return;
        take(message);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // It writes a line for each text that is none.
    google::protobuf::SetLogHandler(nullptr);
    const std::string_view bytes = afd::fuzz::FuzzInput(data, size).text();
    // What one kind has, none of the others need have; all that is done with them is to look.
    read_all<afd::cluster::HostMessage>(bytes, [](const auto& message) { message.ByteSizeLong(); });
    read_all<afd::cluster::LeaderMessage>(bytes,
                                          [](const auto& message) { message.ByteSizeLong(); });
    read_all<afd::cluster::StandInMessage>(bytes,
                                           [](const auto& message) { message.ByteSizeLong(); });
    read_all<afd::cluster::WorkerHostMessage>(bytes, [](const auto& message) {
        if (message.has_sight()) store(message.sight());
    });
    return 0;
}
