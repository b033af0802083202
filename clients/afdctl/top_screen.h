// SPDX-License-Identifier: Apache-2.0
#pragma once

// What `afdctl top` shows: an instance between two looks at its status. Pure: from the two to lines
// that fit a terminal; and to JSON, for programs.

#include <cstdint>
#include <string>
#include <vector>

#include "proto/client.pb.h"

namespace afd::client {

struct ScreenSize {
    uint32_t columns = 80;
    uint32_t rows = 24;
};

// What one worker did between the looks. Parts of the time; what is neither is idle.
struct WorkerLoad {
    bool is_known = false;  // It is the same process in both.
    double busy = 0;
    double bubble = 0;
    double rounds_per_s = 0;
};
WorkerLoad worker_load(const Status& before, const Status& now, int worker);

// Rows of each routed expert between the looks, of all FFN workers; without those whose number no
// expert can have.
std::vector<uint64_t> expert_rows(const Status& before, const Status& now);

// At most `size.rows` lines, none longer than `size.columns`, without colours or control bytes.
std::vector<std::string> top_lines(const Status& before, const Status& now, ScreenSize size);

std::string top_json(const Status& before, const Status& now);

}  // namespace afd::client
