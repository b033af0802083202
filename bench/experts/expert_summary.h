// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the rows of bench_experts come to: targets met, and the geometric mean against oneDNN.

#include <map>
#include <string>

namespace afd::bench {

class ExpertSummary {
  public:
    // `file`: keeps the rows of several runs, which then count together, the last of each name.
    // Empty: this run's rows only.
    explicit ExpertSummary(std::string file);

    // A case, whether it met its target, and oneDNN's time over ours, 0 without a comparison.
    void add(const std::string& name, bool is_met, double dnnl);

    void print() const;

  private:
    struct Row {
        bool is_met;
        double dnnl;
    };

    std::string file_;
    std::map<std::string, Row> rows_;
};

}  // namespace afd::bench
