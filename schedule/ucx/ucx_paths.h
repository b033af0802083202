// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxPaths: the paths of a worker to others: a context and worker of UCX with its connections, and
// those through memory of the host (near_paths.h). It knows bytes and nothing of the protocol, and
// has no thread: all of it is guarded by the lock of the UcxWorker, but for the descriptors.
//
// Active messages only, without remote memory keys. For the sources of this folder.

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/status.h"
#include "schedule/ucx/near_paths.h"
#include "schedule/ucx/ucx_config.h"
#include "schedule/ucx/ucx_message.h"
#include "schedule/ucx/ucx_path.h"
#include "schedule/ucx/ucx_receiver.h"

namespace afd::schedule {

class UcxPaths {
  public:
    using Path = std::shared_ptr<UcxPath>;

    // As UcxWorker::make() has it; at most `num_strangers` wait to be adopted.
    static Result<std::unique_ptr<UcxPaths>> make(const UcxConfig& config,
                                                  bool listens,
                                                  size_t num_strangers);
    // Closes all paths, and takes nothing any more. The object itself is never freed: UCX 1.13 does
    // not end well beside others, its own thread may be in the middle of something.
    static void retire(std::unique_ptr<UcxPaths> paths);

    // Empty if this one does not listen.
    const std::vector<std::byte>& address() const { return address_; }
    // What arrives is the receiver's from here on.
    void start(UcxReceiver& receiver);

    // `may_be_near`: through memory, if the peer is a neighbour. Errors: as UcxWorker::connect().
    Result<Path> connect(std::span<const std::byte> address, bool may_be_near);
    void close(UcxPath& path);
    void send(UcxPath& path, UcxMessage& message) const;
    // Paths for those who asked; strangers that say nothing go. Outside of callbacks.
    void take_requests(uint64_t now_us);

    // One turn of all. Returns whether anything happened.
    bool progress();
    // A turn of one who comes back at once: UCX asks the kernel in each of its own, which takes
    // longer than a look at what comes through memory, so beside that it has one now and then.
    void spin(uint64_t now_us);

    // Where to sleep: readable while UCX, or a neighbour, has something. -1: there are none.
    int ucx_descriptor() const { return event_fd_; }
    int near_descriptor() const { return near_ == nullptr ? -1 : near_->descriptor(); }
    // Before sleeping there. Returns whether nothing has arrived since; asleep it would not be
    // noticed. `with_ucx`: else only neighbours wake.
    bool arm(bool with_ucx);
    // Neighbours wake nobody any more. Nothing if nobody has armed.
    void disarm();
    // What near_descriptor() had.
    void look_at_neighbours(uint64_t now_us);
    // Else it has newcomers to bring at most.
    bool has_ucx_to_take() const { return !has_neighbours() || !paths_.empty(); }

    // Of UCX's callbacks:
    void on_request(ucp_conn_request_h request);
    void on_message(ucp_ep_h ep,
                    std::span<const std::byte> header,
                    std::span<const std::byte> payload) const;

  private:
    explicit UcxPaths(const UcxConfig& config) : config_(config) {}
    Result<> make_worker();
    Result<> listen();
    ucs_status_t listen_at(const sockaddr_storage& address);
    Result<Path> make_path(ucp_ep_params_t& params);
    bool has_neighbours() const { return near_ != nullptr && !near_->all().empty(); }
    std::vector<Path> strangers() const;
    bool has_room_for_stranger() const;
    void hand_on(const Path& path,
                 std::span<const std::byte> header,
                 std::span<const std::byte> payload) const;
    void end();

    const UcxConfig config_;
    UcxReceiver* receiver_ = nullptr;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_listener_h listener_ = nullptr;
    int event_fd_ = -1;
    std::vector<std::byte> address_;
    size_t num_strangers_max_ = 0;
    std::vector<ucp_conn_request_h> requests_;
    std::unordered_map<ucp_ep_h, Path> paths_;
    std::unique_ptr<NearPaths> near_;  // Null: every path is UCX's.
    bool is_armed_ = false;            // Neighbours wake somebody.
    uint64_t spun_us_ = 0;             // When spin() looked at UCX beside neighbours.
};

}  // namespace afd::schedule
