// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/weight_reader.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>

#include "daemon/program/logging.h"
#include "threads/thread_pool.h"

namespace afd::daemon {
namespace {

// Beside a data thread that is never idle it gets a tenth of the core, and the disk has something
// to do.
constexpr int kReaderNice = 10;

constexpr auto kBeginAfter = std::chrono::seconds(10);
constexpr auto kLook = std::chrono::milliseconds(10);
// So little keeps the disk from nobody.
constexpr uint64_t kLittleBytes = uint64_t{64} << 20;

}  // namespace

WeightReader::WeightReader(model::MappedExperts& experts,
                           Metrics metrics,
                           std::span<const uint32_t> cpus,
                           OnDamage on_damage)
    : experts_(&experts), metrics_(metrics), on_damage_(on_damage) {
    metrics_.set(Counter::kWeightBytesLeft, experts.bytes_left());
    thread_ = std::thread([this, cpus] { run(cpus); });
    has_begun_.wait();
}

WeightReader::~WeightReader() {
    {
        const std::lock_guard lock(mutex_);
        // Relaxed: partner is is_stopping().
        is_stopping_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
    thread_.join();
}

void WeightReader::run(std::span<const uint32_t> cpus) {
    // It begins with the one core of the thread that made it, which is a data thread. Refusals
    // cost only speed.
    if (!cpus.empty()) static_cast<void>(threads::pin_this_thread(cpus).ok());
    // Linux gives a thread by its id a priority of its own.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kReaderNice));
    has_begun_.count_down();
    let_others_begin();
    const auto start = std::chrono::steady_clock::now();
    while (!is_stopping()) {
        const Result<bool> is_there = experts_->check_next();
        if (!is_there.ok()) return on_damage_(is_there.error());
        metrics_.set(Counter::kWeightBytesLeft, experts_->bytes_left());
        if (is_there.value()) continue;
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        log::info("{:.1f} MiB of mapped experts are read and checked, in {:.1f} s",
                  static_cast<double>(experts_->num_bytes()) / (1 << 20),
                  took.count());
        return;
    }
}

void WeightReader::let_others_begin() {
    if (experts_->num_bytes() <= kLittleBytes) return;
    const auto end = std::chrono::steady_clock::now() + kBeginAfter;
    std::unique_lock lock(mutex_);
    while (!is_stopping() && !experts_->is_in_use() && std::chrono::steady_clock::now() < end) {
        wake_.wait_for(lock, kLook, [this] { return is_stopping(); });
    }
}

}  // namespace afd::daemon
