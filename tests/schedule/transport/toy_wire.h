// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyWire: the messages of a ToyNetwork on their way, late and in any order that the contract of a
// transport allows (schedule/transport/transport.h). What a message does to its receiver's memory
// is the sender's business.
//
// Messages are queued by lane. The pump, which stands for all network cards, takes from a random
// lane any message that no barrier (a publish, an acknowledgement) separates from the head, and
// stores it into the receiver's memory.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "schedule/layout/segment_header.h"

namespace afd::schedule {

// The bytes that a message carries.
class ToyPayload {
  public:
    explicit ToyPayload(std::span<const std::byte> bytes) : bytes_(bytes.begin(), bytes.end()) {}

    size_t size_bytes() const { return bytes_.size(); }
    void store(void* to) const;

  private:
    std::vector<std::byte> bytes_;
};

// The messages on their way. Thread-safe.
class ToyWire {
  public:
    // Of one worker to another, about one micro-batch or, with -1, two-phase rounds.
    struct Lane {
        Role from_role;
        uint32_t from;
        uint32_t to;
        int64_t micro_batch;

        auto operator<=>(const Lane&) const = default;
    };
    using Store = std::function<void()>;

    // `tick` runs on the pump again and again, between messages.
    ToyWire(uint64_t seed, Store tick);
    ~ToyWire();
    ToyWire(const ToyWire&) = delete;
    ToyWire& operator=(const ToyWire&) = delete;

    // A barrier arrives after everything that was sent before it, and before everything after.
    void send(const Lane& lane, Store store, bool is_barrier);

    // What a new life of a worker begins with: of its predecessor's messages some arrive now, the
    // others never; then `connect` runs before anything else arrives anywhere.
    void cut(Role from_role, uint32_t from, const Store& connect);

    // Runs while nothing arrives.
    void while_still(const Store& store);

  private:
    struct Message {
        Store store;
        bool is_barrier;
    };
    using Queue = std::deque<Message>;

    void run();
    bool deliver_one();
    void deliver_from(Queue& queue);

    std::mutex mutex_;
    std::map<Lane, Queue> lanes_;
    std::mt19937_64 random_;
    Store tick_;
    bool is_over_ = false;
    std::thread pump_;
};

}  // namespace afd::schedule
