// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/kill_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "tests/faults/quantile.h"

namespace afd::test {
namespace {

void append(const std::vector<double>& from, std::vector<double>& to) {
    to.insert(to.end(), from.begin(), from.end());
}

void append(const KillTimes& from, KillTimes& to) {
    append(from.progress_ms, to.progress_ms);
    append(from.restart_ms, to.restart_ms);
}

std::string summary(const std::vector<double>& ms) {
    return fmt::format(
        "{:.0f} / {:.0f} / {:.0f}", quantile(ms, 0.5), quantile(ms, 0.99), quantile(ms, 1));
}

std::string line(const std::string& role, const std::string& faults, const KillTimes& times) {
    return fmt::format("{:<10}{:>5} {} held somebody up, who goes on {}; ready {}\n",
                       role,
                       times.progress_ms.size(),
                       faults,
                       summary(times.progress_ms),
                       summary(times.restart_ms));
}

}  // namespace

void KillReport::add(const KillReport& other) {
    num_kills += other.num_kills;
    num_cuts += other.num_cuts;
    num_requests += other.num_requests;
    num_lost += other.num_lost;
    num_doubled += other.num_doubled;
    num_changed += other.num_changed;
    append(other.ffn, ffn);
    append(other.attention, attention);
    append(other.both, both);
    append(other.host, host);
    append(other.wire, wire);
    append(other.others_gap_ms, others_gap_ms);
    num_descriptors_more = std::max(num_descriptors_more, other.num_descriptors_more);
    kib_more = std::max(kib_more, other.kib_more);
    num_segments_left = std::max(num_segments_left, other.num_segments_left);
}

std::string KillReport::text() const {
    return fmt::format("{} kills{}, {} requests: {} lost, {} doubled, {} changed\n",
                       num_kills,
                       num_cuts == 0 ? "" : fmt::format(" and {} cuts", num_cuts),
                       num_requests,
                       num_lost,
                       num_doubled,
                       num_changed) +
           line("FFN", "kills", ffn) + line("attention", "kills", attention) +
           line("both", "kills", both) +
           (host.restart_ms.empty() ? "" : line("host", "kills", host)) +
           (wire.restart_ms.empty() ? "" : line("wire", "cuts", wire)) +
           fmt::format("others' longest gap {}; more: {} descriptors, {} KiB, {} segments\n",
                       summary(others_gap_ms),
                       num_descriptors_more,
                       kib_more,
                       num_segments_left);
}

}  // namespace afd::test
