// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/digest_thread.h"

#include <algorithm>

#include "daemon/config/cpu_plan.h"
#include "daemon/program/logging.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kFirstLineMs = 2000;
constexpr uint64_t kNextLineMs = 10'000;
// What one disk delivers, they sum up; more would only take cores from workers that load.
constexpr size_t kThreadsMax = 8;

double gib(uint64_t bytes) {
    return static_cast<double>(bytes) / (1 << 30);
}

}  // namespace

DigestThread::DigestThread(EventLoop& loop, const InstanceSetup& setup, Done done)
    : begun_(std::chrono::steady_clock::now()),
      digest_(setup.model().tensors(), setup.model().config_text(), setup.weight_cache_directory()),
      outcome_(Error{}),
      progress_timer_(loop, [this] { say_progress(); }),
      thread_(loop) {
    const auto num_threads =
        static_cast<unsigned>(std::clamp<size_t>(allowed_cpus().size(), 1, kThreadsMax));
    progress_timer_.start(kFirstLineMs);
    job_ = thread_.run([this, num_threads] { outcome_ = digest_.compute(num_threads); },
                       [this, done = std::move(done)] { finish(done); });
}

DigestThread::~DigestThread() {
    digest_.stop();
}

double DigestThread::taken_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

void DigestThread::say_progress() {
    const double taken = taken_s();
    const bool is_long = taken * 1000 >= static_cast<double>(kFirstLineMs);
    progress_timer_.start(is_long ? kNextLineMs : kFirstLineMs);
    if (!is_long) return;
    const uint64_t read = digest_.bytes_read();
    const uint64_t total = digest_.total_bytes();
    const double left_s =
        read == 0 ? 0 : taken * static_cast<double>(total - read) / static_cast<double>(read);
    log::info(
        "reading the weights to compare them with those of other hosts: {:.1f} of {:.1f} GiB"
        "{}",
        gib(read),
        gib(total),
        read == 0 ? "" : fmt::format(", some {:.0f} s left", left_s));
}

void DigestThread::finish(const Done& done) {
    progress_timer_.stop();
    const double taken = taken_s();
    const std::string& why_not_kept = digest_.why_not_kept();
    if (outcome_.ok() && taken * 1000 >= static_cast<double>(kFirstLineMs)) {
        log::info("read {:.1f} GiB of weights in {:.1f} s; their digest is {}{}{}",
                  gib(digest_.bytes_read()),
                  taken,
                  outcome_.value(),
                  why_not_kept.empty() ? "" : ", which the next start reads them for again: ",
                  why_not_kept);
    }
    done(outcome_);
}

}  // namespace afd::daemon
