// SPDX-License-Identifier: Apache-2.0
#pragma once

// ControlView: the parts of a control segment by name (places: window_layout.h).
//
// A view owns nothing. The owner of the segment writes context, doorbell and heartbeat; everybody
// else maps the segment read-only and reads through a ConstControlView.

#include <cstddef>
#include <cstring>

#include "schedule/context/heartbeat.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

class ConstControlView {
  public:
    ConstControlView() = default;
    // REQUIRES: `base` is aligned to a line and maps at least kControlCommonBytes.
    explicit ConstControlView(const std::byte* base) : base_(base) {}

    // Private copies: what is checked is what is used.
    SegmentHeader header() const { return copy<SegmentHeader>(kHeaderOffset); }
    ScheduleContext context() const { return copy<ScheduleContext>(0); }

    const int32_t* armed() const { return at<int32_t>(kDoorbellOffset); }
    const HeartbeatWords& heartbeat_words() const { return *at<HeartbeatWords>(kHeartbeatOffset); }
    // Of an FFN control segment, behind what all have: an offset of window_layout.h.
    const int32_t* word_at(uint64_t offset) const { return at<int32_t>(offset); }

  private:
    template <typename T>
    const T* at(uint64_t offset) const {
        return static_cast<const T*>(static_cast<const void*>(base_ + offset));
    }
    template <typename T>
    T copy(uint64_t offset) const {
        T value;
        std::memcpy(&value, base_ + offset, sizeof(T));
        return value;
    }

    const std::byte* base_ = nullptr;
};

class ControlView {
  public:
    ControlView() = default;
    // REQUIRES: as ConstControlView, mapped read-write.
    explicit ControlView(std::byte* base) : base_(base) {}

    ScheduleContext& context() const { return *at<ScheduleContext>(0); }
    int32_t* armed() const { return at<int32_t>(kDoorbellOffset); }
    HeartbeatWords* heartbeat_words() const { return at<HeartbeatWords>(kHeartbeatOffset); }
    std::byte* base() const { return base_; }
    ConstControlView read_only() const { return ConstControlView(base_); }

    // For the creator only.
    void write_header(const SegmentHeader& header) const {
        std::memcpy(base_ + kHeaderOffset, &header, sizeof(header));
    }

  private:
    template <typename T>
    T* at(uint64_t offset) const {
        return static_cast<T*>(static_cast<void*>(base_ + offset));
    }

    std::byte* base_ = nullptr;
};

}  // namespace afd::schedule
