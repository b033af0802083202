// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/expert_summary.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>

namespace afd::bench {

// A line of the file: whether the target was met, the ratio, and the name to the end of the line.
ExpertSummary::ExpertSummary(std::string file) : file_(std::move(file)) {
    std::ifstream stream(file_);
    Row row{};
    std::string name;
    while (stream >> row.is_met >> row.dnnl >> std::ws && std::getline(stream, name)) {
        rows_[name] = row;
    }
}

void ExpertSummary::add(const std::string& name, bool is_met, double dnnl) {
    rows_[name] = {is_met, dnnl};
    if (!file_.empty()) {
        std::ofstream(file_, std::ios::app) << is_met << ' ' << dnnl << ' ' << name << '\n';
    }
}

void ExpertSummary::print() const {
    size_t num_met = 0;
    size_t num_dnnl = 0;
    size_t num_dnnl_met = 0;
    double log_dnnl = 0;
    for (const auto& [name, row] : rows_) {
        num_met += row.is_met ? 1 : 0;
        if (row.dnnl == 0) continue;
        ++num_dnnl;
        num_dnnl_met += row.dnnl >= 0.98 ? 1 : 0;
        log_dnnl += std::log(row.dnnl);
    }
    std::printf("targets: %zu of %zu met\n", num_met, rows_.size());
    if (num_dnnl == 0) return;
    const double mean = std::exp(log_dnnl / static_cast<double>(num_dnnl));
    std::printf("oneDNN: at least 0.98 in %zu of %zu rows; geometric mean %.2f, target 1.15: %s\n",
                num_dnnl_met,
                num_dnnl,
                mean,
                mean >= 1.15 ? "met" : "NOT met");
}

}  // namespace afd::bench
