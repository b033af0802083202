// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/expert_report.h"

#include <cstdio>
#include <optional>

#include "bench/limits/timing.h"

namespace afd::bench {
namespace {

// Two virtual cores that took `ns` for a round trip share one core, one cache, or neither
// (bench/limits/flag_round_trip.h).
enum class Sharing { kCore, kCache, kNothing };

Sharing sharing_of(double ns) {
    return ns < 70 ? Sharing::kCore : ns < 250 ? Sharing::kCache : Sharing::kNothing;
}

const char* met_text(bool is_met) {
    return is_met ? "met" : "NOT met";
}

}  // namespace

bool RowPlacement::has_changed() const {
    return sharing_of(before_ns) != sharing_of(after_ns);
}

std::string RowPlacement::text() const {
    if (before_ns == 0) return "";
    char text[64];
    std::snprintf(text,
                  sizeof text,
                  "  flag %.0f, %.0f ns%s",
                  before_ns,
                  after_ns,
                  has_changed() ? " CHANGED: not counted" : "");
    return text;
}

void report_case(const ExpertCase& c,
                 const ExpertRatios& ratios,
                 const RowPlacement& placement,
                 ExpertSummary& summary) {
    using Of = ExpertTarget::Of;
    const std::optional<ExpertTarget> target = target_of(c);
    const double read = median(ratios.read);
    const double peak = median(ratios.peak);
    const double bound = median(ratios.bound);
    const bool has_peer = !ratios.dnnl.empty();
    std::printf("%-36s %8.3f ms  read %.2f  peak %.2f  bound %.2f",
                c.name().c_str(),
                median(ratios.milliseconds),
                read,
                peak,
                bound);
    if (has_peer) {
        std::printf("  oneDNN %.2f (%.2f)", median(ratios.dnnl), median(ratios.dnnl_products));
    }
    bool is_met = true;
    if (target) {
        const double have = target->of == Of::kRead ? read : target->of == Of::kPeak ? peak : bound;
        is_met = have >= target->ratio;
        std::printf("  target %s %.2f: %s", target->name(), target->ratio, met_text(is_met));
        // A target of the multiplier's peak is above what memory allows, where rows are too few.
        if (target->of == Of::kPeak) std::printf(", memory allows %.2f", median(ratios.read_peak));
    }
    std::printf("%s\n", placement.text().c_str());
    std::fflush(stdout);
    if (placement.has_changed() || !target) return;
    summary.add(c.name(), is_met, has_peer ? median(ratios.dnnl) : 0);
}

void report_many(const std::string& name,
                 const ManyExpertsTimes& times,
                 const RowPlacement& placement,
                 ExpertSummary& summary) {
    const double of_sum = median(times.of_sum);
    const bool is_met = of_sum <= ManyExperts::kTarget;
    std::printf("%-44s %8.3f ms  %.3f of the sum of its experts  target %.2f: %s%s\n",
                name.c_str(),
                median(times.milliseconds),
                of_sum,
                ManyExperts::kTarget,
                met_text(is_met),
                placement.text().c_str());
    std::fflush(stdout);
    if (!placement.has_changed()) summary.add(name, is_met, 0);
}

}  // namespace afd::bench
