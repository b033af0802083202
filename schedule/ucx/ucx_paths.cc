// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_paths.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/ucx/ucx_address.h"
#include "schedule/ucx/ucx_library.h"

namespace afd::schedule {
namespace {

constexpr unsigned kMessageId = 1;
constexpr uint64_t kStrangerUs = 5'000'000;
constexpr uint64_t kUcxEveryUs = 5;

// Callbacks of UCX, all under the lock.

void on_sent(void* request, ucs_status_t, void* message) {
    --static_cast<UcxMessage*>(message)->num_in_flight;
    ucp_request_free(request);
}

ucs_status_t on_arrived(void* paths,
                        const void* header,
                        size_t header_bytes,
                        void* data,
                        size_t data_bytes,
                        const ucp_am_recv_param_t* param) {
    // What is sent here is sent whole and says whence; a rendezvous would be somebody else's.
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) {
        return UCS_OK;
    }
    static_cast<UcxPaths*>(paths)->on_message(param->reply_ep,
                                              {static_cast<const std::byte*>(header), header_bytes},
                                              {static_cast<const std::byte*>(data), data_bytes});
    return UCS_OK;
}

void on_asked(ucp_conn_request_h request, void* paths) {
    static_cast<UcxPaths*>(paths)->on_request(request);
}

void on_failed(void* path, ucp_ep_h, ucs_status_t) {
    static_cast<UcxPath*>(path)->has_failed = true;
}

}  // namespace

Result<std::unique_ptr<UcxPaths>> UcxPaths::make(const UcxConfig& config,
                                                 bool listens,
                                                 size_t num_strangers) {
    std::unique_ptr<UcxPaths> made(new UcxPaths(config));
    made->num_strangers_max_ = num_strangers;
    AFD_TRY(made->make_worker());
    if (config.near_by_memory) {
        made->near_ = NearPaths::make(
            listens,
            num_strangers,
            [owner = made.get()](const Path& path, const auto& header, const auto& payload) {
                owner->hand_on(path, header, payload);
            });
    }
    if (listens) AFD_TRY(made->listen());
    return made;
}

Result<> UcxPaths::make_worker() {
    AFD_ASSIGN(context_, make_ucx_context(config_));
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
    if (status != UCS_OK) return ucx_error("ucp_worker_create", status);
    status = ucp_worker_get_efd(worker_, &event_fd_);
    if (status != UCS_OK) return ucx_error("ucp_worker_get_efd", status);
    return {};
}

ucs_status_t UcxPaths::listen_at(const sockaddr_storage& address) {
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    const void* first = &address;
    params.sockaddr.addr = static_cast<const sockaddr*>(first);
    params.sockaddr.addrlen = ucx_length_of(address);
    params.conn_handler.cb = on_asked;
    params.conn_handler.arg = this;
    return ucp_listener_create(worker_, &params, &listener_);
}

Result<> UcxPaths::listen() {
    ucs_status_t status = UCS_ERR_BUSY;
    uint32_t port = config_.port;
    for (; port <= std::max(config_.port, config_.last_port); ++port) {
        AFD_ASSIGN(const sockaddr_storage address,
                   parse_ucx_host(config_.host, static_cast<uint16_t>(port)));
        status = listen_at(address);
        if (status == UCS_OK) break;
    }
    if (status != UCS_OK) {
        const std::string ports =
            config_.port == 0
                ? "any port"
                : fmt::format(
                      "port {} to {}", config_.port, std::max(config_.port, config_.last_port));
        return unavailable("UCX cannot listen on {} {}: {}",
                           with(config_.host, ports, ucs_status_string(status)));
    }
    ucp_listener_attr_t attributes{};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    status = ucp_listener_query(listener_, &attributes);
    if (status != UCS_OK) return ucx_error("ucp_listener_query", status);
    UcxAddress own{.ucx = attributes.sockaddr, .near = {}};
    if (near_ != nullptr) own.near = near_->address();
    address_ = own.bytes();
    return {};
}

// A listener ends while UCX's own thread may be in the middle of a request to it, and a worker
// asserts that nothing is left to send. A worker process has one for all its life; only tests have
// more.
void UcxPaths::retire(std::unique_ptr<UcxPaths> paths) {
    static std::mutex mutex;
    // Never ends, as what it holds.
    static auto* retired = new std::vector<UcxPaths*>;
    paths->end();
    const std::lock_guard lock(mutex);
    retired->push_back(paths.release());
}

void UcxPaths::end() {
    near_.reset();
    const auto paths = paths_;
    for (const auto& [ep, path] : paths) close(*path);
    // Closing goes on in turns; a peer that is gone does not stop it for long.
    for (int turn = 0; turn < 1000 && progress(); ++turn) continue;
    receiver_ = nullptr;
}

void UcxPaths::start(UcxReceiver& receiver) {
    receiver_ = &receiver;
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                        UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id = kMessageId;
    params.flags = UCP_AM_FLAG_WHOLE_MSG;
    params.cb = on_arrived;
    params.arg = this;
    const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &params);
    AFD_ASSERT(status == UCS_OK, "UCX refuses a handler: %s", ucs_status_string(status));
}

auto UcxPaths::connect(std::span<const std::byte> bytes, bool may_be_near) -> Result<Path> {
    AFD_ASSIGN(const UcxAddress address, UcxAddress::parse(bytes));
    if (may_be_near && near_ != nullptr && address.near) {
        if (Path path = near_->connect(*address.near)) return path;
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    const void* first = &address.ucx;
    params.sockaddr.addr = static_cast<const sockaddr*>(first);
    params.sockaddr.addrlen = ucx_length_of(address.ucx);
    return make_path(params);
}

auto UcxPaths::make_path(ucp_ep_params_t& params) -> Result<Path> {
    auto path = std::make_shared<UcxPath>();
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode =
        config_.tells_failures ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler.cb = on_failed;
    params.err_handler.arg = path.get();
    const ucs_status_t status = ucp_ep_create(worker_, &params, &path->ep);
    if (status != UCS_OK) return ucx_error("ucp_ep_create", status);
    paths_[path->ep] = path;
    return path;
}

void UcxPaths::close(UcxPath& path) {
    path.has_failed = true;
    path.stranger_us = 0;
    if (path.near != nullptr) return near_->close(path);
    if (path.ep == nullptr || !config_.tells_failures) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ucp_ep_close_nbx(path.ep, &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    paths_.erase(std::exchange(path.ep, nullptr));
}

void UcxPaths::send(UcxPath& path, UcxMessage& message) const {
    if (path.has_failed) return;
    if (path.near != nullptr) return NearPaths::send(path, message);
    ucp_request_param_t params{};
    params.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    params.cb.send = on_sent;
    params.user_data = &message;
    // Eager: a rendezvous would let the peer fetch from memory by a key that nobody checks.
    params.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
    ++message.num_in_flight;
    void* request = ucp_am_send_nbx(path.ep,
                                    kMessageId,
                                    &message.header,
                                    sizeof(message.header),
                                    message.data(),
                                    message.payload_bytes,
                                    &params);
    if (UCS_PTR_IS_PTR(request)) return;
    --message.num_in_flight;
    if (UCS_PTR_IS_ERR(request)) path.has_failed = true;
}

// Those that no receiver uses yet.
auto UcxPaths::strangers() const -> std::vector<Path> {
    std::vector<Path> found;
    const auto add = [&](const Path& path) {
        if (path->stranger_us != 0) found.push_back(path);
    };
    for (const auto& [ep, path] : paths_) add(path);
    if (near_ != nullptr) std::ranges::for_each(near_->all(), add);
    return found;
}

// Whoever connects without end gets no memory for it.
bool UcxPaths::has_room_for_stranger() const {
    return requests_.size() + strangers().size() < num_strangers_max_;
}

void UcxPaths::on_request(ucp_conn_request_h request) {
    if (has_room_for_stranger()) {
        requests_.push_back(request);
    } else {
        ucp_listener_reject(listener_, request);
    }
}

void UcxPaths::take_requests(uint64_t now_us) {
    // Whoever spins beside neighbours alone leaves it out.
    if (!has_ucx_to_take()) ucp_worker_progress(worker_);
    for (const ucp_conn_request_h request : std::exchange(requests_, {})) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request = request;
        // One that is gone already.
        Result<Path> path = make_path(params);
        if (path.ok()) path.value()->stranger_us = now_us;
    }
    look_at_neighbours(now_us);
    for (const Path& path : strangers()) {
        if (path->is_over() || now_us - path->stranger_us > kStrangerUs) close(*path);
    }
}

void UcxPaths::look_at_neighbours(uint64_t now_us) {
    if (near_ != nullptr) near_->look(now_us, [this] { return has_room_for_stranger(); });
}

void UcxPaths::on_message(ucp_ep_h ep,
                          std::span<const std::byte> header,
                          std::span<const std::byte> payload) const {
    const auto found = paths_.find(ep);
    if (found == paths_.end()) return;
    // Its own reference: the receiver may let go of the path.
    const Path path = found->second;
    hand_on(path, header, payload);
}

void UcxPaths::hand_on(const Path& path,
                       std::span<const std::byte> header,
                       std::span<const std::byte> payload) const {
    UcxHeader copy;
    if (receiver_ == nullptr || header.size() != sizeof(copy)) return;
    std::memcpy(&copy, header.data(), sizeof(copy));
    if (copy.magic == kUcxMagic) receiver_->on_message(path, copy, payload);
}

bool UcxPaths::progress() {
    const bool is_near = near_ != nullptr && near_->take();
    return ucp_worker_progress(worker_) != 0 || is_near;
}

void UcxPaths::spin(uint64_t now_us) {
    if (has_neighbours()) {
        near_->take();
        if (!has_ucx_to_take() || now_us - spun_us_ < kUcxEveryUs) return;
        spun_us_ = now_us;
    }
    ucp_worker_progress(worker_);
}

bool UcxPaths::arm(bool with_ucx) {
    is_armed_ = true;
    if (near_ != nullptr && !near_->arm()) return false;
    return !with_ucx || ucp_worker_arm(worker_) == UCS_OK;
}

void UcxPaths::disarm() {
    if (std::exchange(is_armed_, false) && near_ != nullptr) near_->disarm();
}

}  // namespace afd::schedule
