// SPDX-License-Identifier: Apache-2.0
#pragma once

// NearPaths: the paths of a UcxWorker that go through memory of the host, and where neighbours come
// in. Guarded by the worker's lock, but for descriptor().

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "schedule/near/near_door.h"
#include "schedule/ucx/ucx_message.h"
#include "schedule/ucx/ucx_path.h"

namespace afd::schedule {

class NearPaths {
  public:
    using Path = std::shared_ptr<UcxPath>;
    // A message that came: on which path, header and payload. It may close no path.
    using OnMessage = std::function<void(
        const Path& path, std::span<const std::byte> header, std::span<const std::byte> payload)>;

    // Of a worker that `listens`, or not; up to `num_waiting` wait for a look(). Null: the kernel
    // has no such way; all goes by UCX then, which the links show.
    static std::unique_ptr<NearPaths> make(bool listens, size_t num_waiting, OnMessage on_message);

    // Closes all.
    ~NearPaths();
    NearPaths(const NearPaths&) = delete;
    NearPaths& operator=(const NearPaths&) = delete;

    const NearAddress& address() const { return door_->address(); }
    // Null: it is of another host, or cannot be reached, for want of memory or otherwise.
    Path connect(const NearAddress& address);
    // Hears of ends, and of neighbours that have come in, which get a path if `may_enter()`.
    void look(uint64_t now_us, const std::function<bool()>& may_enter);
    void close(UcxPath& path);
    static void send(UcxPath& path, UcxMessage& message);

    const std::vector<Path>& all() const { return paths_; }
    // A turn of each path. Returns whether anything came, or went.
    bool take();

    // Where to sleep: readable while look() has something.
    int descriptor() const { return door_->descriptor(); }
    // Before sleeping there. Returns whether nothing is there to take.
    bool arm();
    void disarm();

  private:
    NearPaths(std::unique_ptr<NearDoor> door, OnMessage on_message);
    Path add(std::unique_ptr<NearLink> link, uint64_t stranger_us);

    std::unique_ptr<NearDoor> door_;
    OnMessage on_message_;
    std::vector<Path> paths_;
};

}  // namespace afd::schedule
