// SPDX-License-Identifier: Apache-2.0
#pragma once

// LinkEmulator: a wire that is slow, and loses and reorders frames: what `tc netem` is, for kernels
// that have none. Two TAP devices, and a thread that reads a frame at one of them and writes it to
// the other when it is due. The devices end with the object.
//
// A frame waits for the ones before it (rate), then for its delay; a longer delay than that of the
// next frame lets that one overtake it. As in a router, a queue that is full drops what comes.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace afd::tools {

struct LinkConditions {
    std::chrono::microseconds delay{0};   // One way, of every frame.
    std::chrono::microseconds jitter{0};  // So much more at most, drawn for each frame.
    double loss = 0;                      // The part of the frames that is lost, drawn for each.
    double mbit_per_second = 0;           // Of each direction. 0: what the thread can copy.
};

class LinkEmulator {
  public:
    // Makes two devices of these names in the network namespace of the caller, who may move them
    // to others. Where that is not permitted, ok() is false. `seed`: of what is drawn.
    LinkEmulator(const std::array<std::string, 2>& devices,
                 const LinkConditions& conditions,
                 uint64_t seed = 1);
    ~LinkEmulator();
    LinkEmulator(const LinkEmulator&) = delete;
    LinkEmulator& operator=(const LinkEmulator&) = delete;

    bool ok() const { return thread_.joinable(); }
    // A descriptor that is readable once the wire has ended by itself: a device is gone, with its
    // namespace, say.
    int ended() const { return ended_; }
    // Which one, after that.
    std::optional<size_t> gone_device() const;
    // Until now, of both directions. Safe in any thread.
    uint64_t num_frames() const;
    uint64_t num_lost() const;
    uint64_t num_overtaken() const;

  private:
    void run(uint64_t seed);
    void end_without(size_t device);

    const LinkConditions conditions_;
    std::array<int, 2> devices_{-1, -1};
    int stop_ = -1;   // An eventfd.
    int ended_ = -1;  // The same.
    std::atomic<int> gone_device_{-1};
    std::atomic<uint64_t> num_frames_{0};
    std::atomic<uint64_t> num_lost_{0};
    std::atomic<uint64_t> num_overtaken_{0};
    std::thread thread_;
};

}  // namespace afd::tools
