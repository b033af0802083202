// SPDX-License-Identifier: Apache-2.0
#include "bench/network/network_pair.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "proto/failure.h"
#include "schedule/context/fresh_memory.h"
#include "schedule/shared_memory/shm_transport.h"
#include "schedule/ucx/ucx_dispatch.h"
#include "schedule/ucx/ucx_return.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::bench {
namespace {

using schedule::Order;
using schedule::Role;

constexpr uint64_t kForeverUs = 60'000'000;

// What the two processes tell each other besides the transport.
struct Shared {
    // Release and acquire: the address, and the figures, are complete.
    std::atomic<uint32_t> address_bytes{0};
    std::array<std::byte, 128> address{};
    std::atomic<bool> is_done{false};
    NetworkFigures figures;
};

std::byte* map_shared(uint64_t bytes) {
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    AFD_ASSERT(memory != MAP_FAILED, "no shared memory of %zu bytes", size_t{bytes});
    return static_cast<std::byte*>(memory);
}

// An instance of one session and one rank in shared memory, as afdd makes it.
struct Pair {
    explicit Pair(const NetworkLoad& load)
        : geometry{.num_sessions = 1,
                   .num_micro_batches = load.num_lanes,
                   .micro_batch_size = load.rows,
                   .selected_expert_num = 1,
                   .num_experts = 1,
                   .attn_to_ffn_token_bytes = load.row_bytes,
                   .ffn_to_attn_token_bytes = load.row_bytes,
                   .num_ffn_workers = 1},
          layout(schedule::WindowLayout::compute(geometry).value()),
          session{map_shared(layout.attention_window.total_bytes),
                  map_shared(layout.attention_control_bytes)},
          rank{map_shared(layout.ffn_window.total_bytes),
               map_shared(layout.ffn_control.total_bytes)},
          session_doorbell(::eventfd(0, EFD_NONBLOCK)),
          rank_doorbell(::eventfd(0, EFD_NONBLOCK)),
          shared(new (map_shared(sizeof(Shared))) Shared) {
        schedule::format_ffn_window(layout, rank.window);
        format(Role::kAttention, session.control);
        format(Role::kFfn, rank.control);
    }

    struct Memory {
        std::byte* window;
        std::byte* control;
    };

    void format(Role role, std::byte* control) const {
        schedule::format_control(
            schedule::make_segment_header(geometry, {1, "bench", "bench"}, role, 0).value(),
            role == Role::kFfn ? schedule::ScheduleMode::kFfn : schedule::ScheduleMode::kAttention,
            control);
    }

    schedule::Geometry geometry;
    schedule::WindowLayout layout;
    Memory session;
    Memory rank;
    int session_doorbell;
    int rank_doorbell;
    Shared* shared;
};

std::unique_ptr<schedule::ReturnTransport> make_returns(
    const Pair& pair,
    schedule::UcxAddressBook& book,
    const std::optional<schedule::UcxConfig>& ucx) {
    if (!ucx) {
        return std::make_unique<schedule::ShmReturnTransport>(
            pair.layout,
            0,
            schedule::ShmPeers(pair.rank.window,
                               pair.rank.control,
                               {{pair.session.window, pair.session.control}},
                               pair.rank_doorbell,
                               {pair.session_doorbell}));
    }
    auto worker = schedule::UcxWorker::make(*ucx, true);
    if (!worker.ok()) return nullptr;
    const std::vector<std::byte> address = worker.value()->address();
    std::ranges::copy(address, pair.shared->address.begin());
    book.set(Role::kAttention, 0, {1, {}});
    auto made = schedule::UcxReturn::make({.role = Role::kFfn,
                                           .instance_id = 1,
                                           .epoch = 1,
                                           .book = &book,
                                           .control = pair.rank.control,
                                           .doorbell = pair.rank_doorbell},
                                          pair.layout,
                                          std::move(worker).value());
    if (!made.ok()) return nullptr;
    // Release; partner: make_dispatch().
    pair.shared->address_bytes.store(static_cast<uint32_t>(address.size()),
                                     std::memory_order_release);
    return std::move(made).value();
}

std::unique_ptr<schedule::DispatchTransport> make_dispatch(
    const Pair& pair,
    schedule::UcxAddressBook& book,
    const std::optional<schedule::UcxConfig>& ucx) {
    if (!ucx) {
        return std::make_unique<schedule::ShmDispatchTransport>(
            pair.layout,
            0,
            schedule::ShmPeers(pair.session.window,
                               pair.session.control,
                               {{pair.rank.window, pair.rank.control}},
                               pair.session_doorbell,
                               {pair.rank_doorbell}));
    }
    auto worker = schedule::UcxWorker::make(*ucx, false);
    if (!worker.ok()) return nullptr;
    uint32_t bytes = 0;
    // Acquire; partner: make_returns().
    while ((bytes = pair.shared->address_bytes.load(std::memory_order_acquire)) == 0)
        ::usleep(1000);
    const auto* first = pair.shared->address.data();
    book.set(Role::kFfn, 0, {1, {first, first + bytes}});
    auto made = schedule::UcxDispatch::make({.role = Role::kAttention,
                                             .instance_id = 1,
                                             .epoch = 1,
                                             .book = &book,
                                             .control = pair.session.control,
                                             .doorbell = pair.session_doorbell},
                                            pair.layout,
                                            std::move(worker).value());
    return made.ok() ? std::move(made).value() : nullptr;
}

// Answers every round until the other process is done.
void run_rank(const NetworkLoad& load, const Pair& pair, schedule::ReturnTransport& transport) {
    schedule::AdaptiveWait wait(transport.doorbell(), load.spin_us, false);
    const schedule::DescriptorFlags flags = transport.descriptor_flags();
    std::vector<int32_t> known(load.num_lanes, 0);
    const std::vector<std::byte> row(load.row_bytes, std::byte{1});
    const auto has_new = [&](Order order) {
        for (size_t m = 0; m < known.size(); ++m) {
            if (flags.at(m, order) != known[m]) return true;
        }
        return false;
    };
    // Acquire; partner: run_session().
    while (!pair.shared->is_done.load(std::memory_order_acquire)) {
        wait.until(schedule::steady_now_us() + 20'000, true, has_new);
        for (uint32_t m = 0; m < load.num_lanes; ++m) {
            const int32_t flag = flags.at(m, Order::kAcquire);
            if (flag == known[m]) continue;
            known[m] = flag;
            for (uint32_t i = 0; load.returns_rows && i < load.rows; ++i) {
                transport.put_result(0, m, i, 0, row, flag);
            }
            transport.acknowledge(0, m, flag);
        }
    }
}

void run_session(const NetworkLoad& load,
                 const Pair& pair,
                 schedule::DispatchTransport& transport) {
    schedule::AdaptiveWait wait(transport.doorbell(), load.spin_us, false);
    const std::vector<std::byte> row(load.row_bytes, std::byte{2});
    const std::vector<int32_t> ids(load.rows, 0);
    std::vector<double> times;
    std::vector<uint64_t> begun_ns(load.num_lanes);
    std::vector<int32_t> rounds(load.num_lanes, 0);
    const uint32_t num_before = load.num_rounds / 10;
    uint64_t start_ns = schedule::steady_now_ns();
    const auto is_free = [&](uint32_t m, Order order) {
        return transport.descriptor_flag(0, m) == transport.acknowledged(0, m, order);
    };
    const uint64_t num_all = uint64_t{load.num_lanes} * (load.num_rounds + num_before);
    uint64_t num_begun = 0;
    uint64_t num_ended = 0;
    while (num_ended < num_all) {
        wait.until(schedule::steady_now_us() + kForeverUs, true, [&](Order order) {
            for (uint32_t m = 0; m < load.num_lanes; ++m) {
                if (is_free(m, order) && (num_begun < num_all || begun_ns[m] != 0)) return true;
            }
            return false;
        });
        for (uint32_t m = 0; m < load.num_lanes; ++m) {
            if (!is_free(m, Order::kAcquire)) continue;
            const uint64_t now_ns = schedule::steady_now_ns();
            if (begun_ns[m] != 0) {
                times.push_back(static_cast<double>(now_ns - begun_ns[m]) / 1000);
                begun_ns[m] = 0;
                if (++num_ended == uint64_t{load.num_lanes} * num_before) {
                    times.clear();
                    start_ns = now_ns;
                }
            }
            if (num_begun == num_all) continue;
            ++num_begun;
            begun_ns[m] = schedule::steady_now_ns();
            for (uint32_t i = 0; i < load.rows; ++i) transport.put_row(0, m, i, 0, row);
            transport.publish(0, m, 0, ids, ++rounds[m]);
        }
    }
    const double seconds = static_cast<double>(schedule::steady_now_ns() - start_ns) * 1e-9;
    const double bytes = static_cast<double>(times.size()) * load.rows * load.row_bytes;
    std::nth_element(
        times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    pair.shared->figures = {times[times.size() / 2], bytes / seconds * 1e-9};
    // Release; partner: run_rank(), and whoever waits for this process.
    pair.shared->is_done.store(true, std::memory_order_release);
}

pid_t fork_to(const std::function<bool()>& body) {
    const pid_t pid = ::fork();
    AFD_ASSERT(pid >= 0, "fork failed");
    // No end of objects: the processes of UCX end with the process.
    if (pid == 0) ::_exit(body() ? 0 : 1);
    return pid;
}

}  // namespace

Result<NetworkFigures> measure_pair(const NetworkLoad& load,
                                    const std::optional<schedule::UcxConfig>& ucx) {
    const Pair pair(load);
    schedule::UcxAddressBook book(1, 1);
    const std::array<pid_t, 2> children = {fork_to([&] {
                                               const auto transport = make_returns(pair, book, ucx);
                                               if (transport) run_rank(load, pair, *transport);
                                               return transport != nullptr;
                                           }),
                                           fork_to([&] {
                                               const auto transport =
                                                   make_dispatch(pair, book, ucx);
                                               if (transport) run_session(load, pair, *transport);
                                               return transport != nullptr;
                                           })};
    bool has_failed = false;
    for (size_t i = 0; i < children.size(); ++i) {
        int status = 0;
        ::waitpid(-1, &status, 0);
        if (status == 0) continue;
        has_failed = true;
        for (const pid_t child : children) ::kill(child, SIGKILL);
    }
    if (has_failed)
        return unavailable("a process of the pair failed; ucx_info -d lists transports");
    return pair.shared->figures;
}

}  // namespace afd::bench
