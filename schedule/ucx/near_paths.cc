// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/near_paths.h"

#include <algorithm>
#include <utility>

namespace afd::schedule {
namespace {

// Hands on what comes by one path.
class TakerOfPath final : public NearReceiver {
  public:
    TakerOfPath(const NearPaths::OnMessage& on_message, const NearPaths::Path& path)
        : on_message_(on_message), path_(path) {}
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        // Its own reference: whoever takes it may let go of the path.
        const NearPaths::Path path = path_;
        on_message_(path, header, payload);
    }

  private:
    const NearPaths::OnMessage& on_message_;
    const NearPaths::Path& path_;
};

}  // namespace

std::unique_ptr<NearPaths> NearPaths::make(bool listens, size_t num_waiting, OnMessage on_message) {
    Result<std::unique_ptr<NearDoor>> door = NearDoor::make(listens, num_waiting);
    if (!door.ok()) return nullptr;
    return std::unique_ptr<NearPaths>(
        new NearPaths(std::move(door).value(), std::move(on_message)));
}

NearPaths::NearPaths(std::unique_ptr<NearDoor> door, OnMessage on_message)
    : door_(std::move(door)), on_message_(std::move(on_message)) {}

NearPaths::~NearPaths() {
    // Whoever still has one: its messages may end before it.
    for (const Path& path : paths_) path->near.reset();
}

NearPaths::Path NearPaths::connect(const NearAddress& address) {
    if (!address.is_of_same_host(door_->address())) return nullptr;
    Result<std::unique_ptr<NearLink>> link = NearLink::connect(address);
    return link.ok() ? add(std::move(link).value(), 0) : nullptr;
}

NearPaths::Path NearPaths::add(std::unique_ptr<NearLink> link, uint64_t stranger_us) {
    auto path = std::make_shared<UcxPath>();
    path->near = std::move(link);
    path->stranger_us = stranger_us;
    door_->watch(*path->near);
    paths_.push_back(path);
    return path;
}

void NearPaths::look(uint64_t now_us, const std::function<bool()>& may_enter) {
    for (std::unique_ptr<NearLink>& link : door_->look(now_us)) {
        if (may_enter()) add(std::move(link), now_us);
    }
}

void NearPaths::close(UcxPath& path) {
    const std::unique_ptr<NearLink> closed = std::move(path.near);
    std::erase_if(paths_, [&](const Path& other) { return other.get() == &path; });
}

void NearPaths::send(UcxPath& path, UcxMessage& message) {
    path.near->send({.header = std::as_bytes(std::span(&message.header, 1)),
                     .payload = {message.data(), message.payload_bytes},
                     .num_in_flight = &message.num_in_flight});
}

bool NearPaths::take() {
    bool any = false;
    for (const Path& path : paths_) {
        TakerOfPath taker(on_message_, path);
        any |= path->near->take(taker);
    }
    return any;
}

bool NearPaths::arm() {
    return std::ranges::none_of(paths_, [](const Path& path) { return path->near->arm(); });
}

void NearPaths::disarm() {
    for (const Path& path : paths_) path->near->disarm();
}

}  // namespace afd::schedule
