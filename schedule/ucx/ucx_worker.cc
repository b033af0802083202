// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_worker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/ucx/near_paths.h"
#include "schedule/ucx/ucx_address.h"
#include "schedule/ucx/ucx_library.h"
#include "schedule/ucx/ucx_path.h"
#include "schedule/wait/adaptive_wait.h"
#include "schedule/wait/doorbell.h"

namespace afd::schedule {
namespace {

constexpr unsigned kMessageId = 1;
// Turns of UCX under one lock, so that a sender gets its turn while much arrives.
constexpr int kTurnsAtOnce = 32;
constexpr uint64_t kStrangerUs = 5'000'000;
// UCX asks the kernel in each of its turns, which takes longer than a look at what comes through
// memory. So who spins over both leaves out most of them.
constexpr uint32_t kTurnsForUcx = 8;

}  // namespace

struct UcxWorker::Handles {
    UcxReceiver* receiver = nullptr;
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_listener_h listener = nullptr;
    int event_fd = -1;
    size_t num_strangers_max = 0;
    std::vector<ucp_conn_request_h> requests;
    std::unordered_map<ucp_ep_h, std::shared_ptr<Path>> paths;
    std::unique_ptr<NearPaths> near;  // Null: every path is UCX's.

    // Those that no receiver uses yet.
    std::vector<std::shared_ptr<Path>> strangers() const {
        std::vector<std::shared_ptr<Path>> found;
        const auto add = [&](const std::shared_ptr<Path>& path) {
            if (path->stranger_us != 0) found.push_back(path);
        };
        for (const auto& [ep, path] : paths) add(path);
        if (near != nullptr) std::ranges::for_each(near->all(), add);
        return found;
    }
    // Whoever connects without end gets no memory for it.
    bool has_room_for_stranger() const {
        return requests.size() + strangers().size() < num_strangers_max;
    }
    void on_request(ucp_conn_request_h request) {
        if (has_room_for_stranger()) {
            requests.push_back(request);
        } else {
            ucp_listener_reject(listener, request);
        }
    }
    void on_message(ucp_ep_h ep,
                    std::span<const std::byte> header,
                    std::span<const std::byte> payload) {
        const auto found = paths.find(ep);
        if (found == paths.end()) return;
        // Its own reference: the receiver may let go of the path.
        const std::shared_ptr<Path> path = found->second;
        hand_on(path, header, payload);
    }
    void hand_on(const std::shared_ptr<Path>& path,
                 std::span<const std::byte> header,
                 std::span<const std::byte> payload) {
        UcxHeader copy;
        if (receiver == nullptr || header.size() != sizeof(copy)) return;
        std::memcpy(&copy, header.data(), sizeof(copy));
        if (copy.magic == kUcxMagic) receiver->on_message(path, copy, payload);
    }
    bool has_neighbours() const { return near != nullptr && !near->all().empty(); }
    // Else it has newcomers to bring at most, and the own thread finds them.
    bool has_ucx_to_take() const { return !has_neighbours() || !paths.empty(); }
    bool take_near() const { return near != nullptr && near->take(); }
};

namespace {

void on_sent(void* request, ucs_status_t, void* message) {
    --static_cast<UcxMessage*>(message)->num_in_flight;
    ucp_request_free(request);
}

template <typename Handles>
ucs_status_t on_arrived(void* handles,
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
    static_cast<Handles*>(handles)->on_message(
        param->reply_ep,
        {static_cast<const std::byte*>(header), header_bytes},
        {static_cast<const std::byte*>(data), data_bytes});
    return UCS_OK;
}

template <typename Handles>
void on_request(ucp_conn_request_h request, void* handles) {
    static_cast<Handles*>(handles)->on_request(request);
}

// Under the lock, as all callbacks.
void on_failed(void* path, ucp_ep_h, ucs_status_t) {
    static_cast<UcxPath*>(path)->has_failed = true;
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(const UcxConfig& config,
                                                   bool listens,
                                                   size_t num_strangers) {
    auto handles = std::make_unique<Handles>();
    handles->num_strangers_max = num_strangers;
    AFD_ASSIGN(handles->context, make_ucx_context(config));
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucs_status_t status = ucp_worker_create(handles->context, &params, &handles->worker);
    if (status != UCS_OK) return ucx_error("ucp_worker_create", status);
    status = ucp_worker_get_efd(handles->worker, &handles->event_fd);
    if (status != UCS_OK) return ucx_error("ucp_worker_get_efd", status);
    std::unique_ptr<UcxWorker> made(new UcxWorker(config, std::move(handles)));
    made->wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (made->wake_fd_ < 0) return unavailable("no eventfd for the thread that receives");
    if (config.near_by_memory) {
        Handles* owner = made->handles_.get();
        owner->near = NearPaths::make(
            listens, [owner](const auto& path, const auto& header, const auto& payload) {
                owner->hand_on(path, header, payload);
            });
    }
    if (listens) AFD_TRY(made->listen());
    return made;
}

Result<> UcxWorker::listen() {
    AFD_ASSIGN(sockaddr_storage address, parse_ucx_host(config_.host, config_.port));
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    void* first = &address;
    params.sockaddr.addr = static_cast<const sockaddr*>(first);
    params.sockaddr.addrlen = ucx_length_of(address);
    params.conn_handler.cb = on_request<Handles>;
    params.conn_handler.arg = handles_.get();
    ucs_status_t status = ucp_listener_create(handles_->worker, &params, &handles_->listener);
    if (status != UCS_OK) {
        return unavailable("UCX cannot listen on {} port {}: {}",
                           with(config_.host, config_.port, ucs_status_string(status)));
    }
    ucp_listener_attr_t attributes{};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    status = ucp_listener_query(handles_->listener, &attributes);
    if (status != UCS_OK) return ucx_error("ucp_listener_query", status);
    UcxAddress own{.ucx = attributes.sockaddr, .near = {}};
    if (handles_->near != nullptr) own.near = handles_->near->address();
    address_ = own.bytes();
    return {};
}

UcxWorker::UcxWorker(const UcxConfig& config, std::unique_ptr<Handles> handles)
    : config_(config), handles_(std::move(handles)) {}

// UCX 1.13 does not end well beside others: a listener ends while UCX's own thread may be in the
// middle of a request to it, and a worker asserts that nothing is left to send. A worker process
// has one for all its life; only tests have more.
void UcxWorker::retire(Handles* handles) {
    static std::mutex mutex;
    // Never ends, as what it holds.
    static auto* retired = new std::vector<Handles*>;
    const std::lock_guard lock(mutex);
    retired->push_back(handles);
}

UcxWorker::~UcxWorker() {
    stop();
    {
        const Lock held = lock();
        handles_->near.reset();
        const auto paths = handles_->paths;
        for (const auto& [ep, path] : paths) close(*path);
        // Closing goes on in turns; a peer that is gone does not stop it for long.
        for (int turn = 0; turn < 1000 && progress(); ++turn) continue;
        handles_->receiver = nullptr;
    }
    retire(handles_.release());
    if (wake_fd_ >= 0) ::close(wake_fd_);
}

void UcxWorker::start(UcxReceiver& receiver) {
    AFD_ASSERT(!thread_.joinable(), "a worker of UCX has one receiver");
    {
        const Lock held = lock();
        handles_->receiver = &receiver;
        ucp_am_handler_param_t params{};
        params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                            UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        params.id = kMessageId;
        params.flags = UCP_AM_FLAG_WHOLE_MSG;
        params.cb = on_arrived<Handles>;
        params.arg = handles_.get();
        const ucs_status_t status = ucp_worker_set_am_recv_handler(handles_->worker, &params);
        AFD_ASSERT(status == UCS_OK, "UCX refuses a handler: %s", ucs_status_string(status));
    }
    thread_ = std::thread([this] { run(); });
}

void UcxWorker::stop() {
    // Relaxed: the wake-up that follows is what the thread acts on, and join() orders the rest.
    is_over_.store(true, std::memory_order_relaxed);
    if (!thread_.joinable()) return;
    wake();
    thread_.join();
}

void UcxWorker::wake() {
    // Release; partner: run().
    wants_tick_.store(true, std::memory_order_release);
    ring(wake_fd_);
}

Result<std::shared_ptr<UcxPath>> UcxWorker::connect(std::span<const std::byte> bytes) {
    AFD_ASSIGN(const UcxAddress address, UcxAddress::parse(bytes));
    if (handles_->near != nullptr && address.near) {
        if (std::shared_ptr<Path> path = handles_->near->connect(*address.near)) return path;
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    const void* first = &address.ucx;
    params.sockaddr.addr = static_cast<const sockaddr*>(first);
    params.sockaddr.addrlen = ucx_length_of(address.ucx);
    return make_path(&params);
}

Result<std::shared_ptr<UcxPath>> UcxWorker::make_path(void* ep_params) {
    ucp_ep_params_t& params = *static_cast<ucp_ep_params_t*>(ep_params);
    auto path = std::make_shared<Path>();
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode =
        config_.tells_failures ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler.cb = on_failed;
    params.err_handler.arg = path.get();
    const ucs_status_t status = ucp_ep_create(handles_->worker, &params, &path->ep);
    if (status != UCS_OK) return ucx_error("ucp_ep_create", status);
    handles_->paths[path->ep] = path;
    return path;
}

void UcxWorker::adopt(Path& path) {
    path.stranger_us = 0;
}

// Outside of UCX's callbacks: paths for those who asked; strangers that say nothing go.
void UcxWorker::take_requests(uint64_t now_us) {
    for (const ucp_conn_request_h request : std::exchange(handles_->requests, {})) {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request = request;
        // One that is gone already.
        Result<std::shared_ptr<Path>> path = make_path(&params);
        if (path.ok()) path.value()->stranger_us = now_us;
    }
    look_at_neighbours(now_us);
    for (const std::shared_ptr<Path>& path : handles_->strangers()) {
        if (has_failed(*path) || now_us - path->stranger_us > kStrangerUs) close(*path);
    }
}

void UcxWorker::look_at_neighbours(uint64_t now_us) {
    if (handles_->near == nullptr) return;
    handles_->near->look(now_us, [this] { return handles_->has_room_for_stranger(); });
}

void UcxWorker::close(Path& path) {
    path.has_failed = true;
    path.stranger_us = 0;
    if (path.near != nullptr) return handles_->near->close(path);
    if (path.ep == nullptr || !config_.tells_failures) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ucp_ep_close_nbx(path.ep, &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    handles_->paths.erase(std::exchange(path.ep, nullptr));
}

void UcxWorker::send(Path& path, UcxMessage& message) {
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

bool UcxWorker::has_failed(const Path& path) {
    return path.has_failed || (path.near != nullptr && path.near->has_failed());
}

bool UcxWorker::is_near(const Path& path) {
    return path.near != nullptr;
}

void UcxWorker::fail(Path& path) {
    path.has_failed = true;
}

void UcxWorker::try_progress() {
    taker_.on_take();
    const Lock held(mutex_, std::try_to_lock);
    if (!held.owns_lock()) return;
    if (std::exchange(takes_all_, false)) {
        for (int turn = 0; turn < kTurnsAtOnce && progress();) ++turn;
    } else {
        spin();
    }
}

void UcxWorker::spin() {
    handles_->take_near();
    const bool is_turn_of_ucx = ++num_spins_ % kTurnsForUcx == 0;
    if (!handles_->has_neighbours() || (is_turn_of_ucx && handles_->has_ucx_to_take())) {
        ucp_worker_progress(handles_->worker);
    }
}

bool UcxWorker::progress() {
    const bool is_near = handles_->take_near();
    return ucp_worker_progress(handles_->worker) != 0 || is_near;
}

void UcxWorker::run() {
    uint64_t tick_us = 0;
    bool was_awake = true;
    // Relaxed: see stop().
    while (!is_over_.load(std::memory_order_relaxed)) {
        // Relaxed: see num_turns().
        num_turns_.fetch_add(1, std::memory_order_relaxed);
        // Acquire; partner: wake().
        if (wants_tick_.exchange(false, std::memory_order_acquire)) tick_us = 0;
        const bool is_spared = taker_.has_taker();
        // What woke this thread may have been for a taker that went to sleep meanwhile.
        if (!is_spared || was_awake || steady_now_us() >= tick_us) {
            const Lock held = lock();
            for (int turn = 0; turn < kTurnsAtOnce && progress();) ++turn;
            // Read behind what arrived: nobody was heard later than now.
            const uint64_t now_us = steady_now_us();
            if (now_us >= tick_us) {
                take_requests(now_us);
                handles_->receiver->on_tick(now_us);
                tick_us = now_us + kTickUs;
            }
            keep_armed();
        }
        was_awake = !is_spared;
        is_spared ? rest(tick_us) : look_and_sleep(tick_us);
    }
}

// For the taker that sleeps: turns disarm.
void UcxWorker::keep_armed() {
    for (int turn = 0; turn < kTurnsAtOnce && taker_.sleeps(); ++turn) {
        if (arm(handles_->has_ucx_to_take())) return;
        progress();
    }
}

// Until wake(), for kRestUs at most, or until the tick where nothing goes on. What arrives does not
// end it.
void UcxWorker::rest(uint64_t tick_us) {
    constexpr uint64_t kQuiet = 10;
    const uint64_t now_us = steady_now_us();
    const uint64_t left_us = tick_us > now_us ? tick_us - now_us : 0;
    const bool is_quiet = taker_.sleeps() && taker_.num_quiet() > kQuiet;
    const timespec time = timespec_of(is_quiet ? left_us : std::min(left_us, kRestUs));
    pollfd event{wake_fd_, POLLIN, 0};
    if (::ppoll(&event, 1, &time, nullptr) > 0) take_ring();
}

void UcxWorker::sleep(int eventfd, uint64_t timeout_us) {
    takes_all_ = true;
    bool with_ucx = true;
    {
        const Lock held(mutex_, std::try_to_lock);
        if (!held.owns_lock()) return;
        with_ucx = handles_->has_ucx_to_take();
        if (!arm(with_ucx)) return disarm();
        taker_.begin_sleep();
    }
    pollfd events[3] = {{eventfd, POLLIN, 0},
                        {with_ucx ? handles_->event_fd : -1, POLLIN, 0},
                        {neighbours_fd(), POLLIN, 0}};
    const timespec timeout = timespec_of(timeout_us);
    ::ppoll(events, 3, &timeout, nullptr);
    taker_.end_sleep();
    end_sleep((events[2].revents & POLLIN) != 0);
}

// Until something happens or the next tick.
void UcxWorker::look_and_sleep(uint64_t tick_us) {
    if (has_events(std::min(tick_us, steady_now_us() + config_.spin_us))) return;
    {
        const Lock held = lock();
        if (!arm(true)) return disarm();
    }
    pollfd events[3] = {
        {handles_->event_fd, POLLIN, 0}, {wake_fd_, POLLIN, 0}, {neighbours_fd(), POLLIN, 0}};
    const uint64_t before_us = steady_now_us();
    const timespec timeout = timespec_of(tick_us > before_us ? tick_us - before_us : 0);
    ::ppoll(events, 3, &timeout, nullptr);
    if ((events[1].revents & POLLIN) != 0) take_ring();
    end_sleep((events[2].revents & POLLIN) != 0);
}

int UcxWorker::neighbours_fd() const {
    return handles_->near == nullptr ? -1 : handles_->near->descriptor();
}

void UcxWorker::end_sleep(bool have_neighbours_news) {
    if (handles_->near == nullptr) return;
    // Another one at it: peers wake once too often, and the news are still there.
    const Lock held(mutex_, std::try_to_lock);
    if (!held.owns_lock()) return;
    if (!taker_.sleeps()) disarm();
    if (have_neighbours_news) look_at_neighbours(steady_now_us());
}

// Returns whether nothing has arrived since; asleep it would not be noticed.
bool UcxWorker::arm(bool with_ucx) {
    if (handles_->near != nullptr && !handles_->near->arm()) return false;
    return !with_ucx || ucp_worker_arm(handles_->worker) == UCS_OK;
}

void UcxWorker::disarm() {
    if (handles_->near != nullptr) handles_->near->disarm();
}

void UcxWorker::take_ring() const {
    uint64_t count = 0;
    // Nothing to read: nobody rang.
    static_cast<void>(::read(wake_fd_, &count, sizeof(count)));
}

// Spins until something happens or the time is over.
bool UcxWorker::has_events(uint64_t until_us) {
    while (config_.spin_us != 0 && steady_now_us() < until_us) {
        const Lock held = lock();
        if (progress()) return true;
    }
    return false;
}

}  // namespace afd::schedule
