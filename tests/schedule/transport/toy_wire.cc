// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/transport/toy_wire.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace afd::schedule {

namespace {

// One delivery in so many is followed by a nap, so that messages pile up and mix.
constexpr uint64_t kNapOneIn = 32;

}  // namespace

// An empty payload has no address, and memcpy() takes no null pointer.
void ToyPayload::store(void* to) const {
    if (!bytes_.empty()) std::memcpy(to, bytes_.data(), bytes_.size());
}

ToyWire::ToyWire(uint64_t seed, Store tick)
    : random_(seed), tick_(std::move(tick)), pump_([this] { run(); }) {}

ToyWire::~ToyWire() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    pump_.join();
}

void ToyWire::send(const Lane& lane, Store store, bool is_barrier) {
    const std::lock_guard lock(mutex_);
    lanes_[lane].push_back({std::move(store), is_barrier});
}

void ToyWire::run() {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
        if (deliver_one() && random_() % kNapOneIn != 0) continue;
        tick_();
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        lock.lock();
    }
}

bool ToyWire::deliver_one() {
    std::vector<Queue*> busy;
    for (auto& [lane, queue] : lanes_) {
        if (!queue.empty()) busy.push_back(&queue);
    }
    if (busy.empty()) return false;
    deliver_from(*busy[random_() % busy.size()]);
    return true;
}

// Any message in front of the first barrier; or that, if it is the first.
void ToyWire::deliver_from(Queue& queue) {
    const auto barrier = std::find_if(
        queue.begin(), queue.end(), [](const Message& message) { return message.is_barrier; });
    const auto num_free = static_cast<uint64_t>(barrier - queue.begin());
    const auto chosen =
        queue.begin() + static_cast<std::ptrdiff_t>(num_free == 0 ? 0 : random_() % num_free);
    chosen->store();
    queue.erase(chosen);
}

void ToyWire::cut(Role from_role, uint32_t from, const Store& connect) {
    const std::lock_guard lock(mutex_);
    for (auto& [lane, queue] : lanes_) {
        if (lane.from_role != from_role || lane.from != from) continue;
        for (uint64_t left = random_() % (queue.size() + 1); left > 0; --left) deliver_from(queue);
        queue.clear();
    }
    connect();
}

void ToyWire::while_still(const Store& store) {
    const std::lock_guard lock(mutex_);
    store();
}

}  // namespace afd::schedule
