// SPDX-License-Identifier: Apache-2.0
#pragma once

// What afd-load tells people: a table with a row for each level, and the lines below it.

#include <string>
#include <vector>

#include "clients/load/level_result.h"
#include "clients/load/level_run.h"

namespace afd::client {

// Two lines, at most 100 columns.
std::string level_table_header();
// One line. Latencies in milliseconds; "-" where nothing was measured.
std::string level_table_row(const LevelResult& result);

// Verdict on the client itself, whether the run ended early, what the server's prefix cache had,
// and failures by their kind with a sample message each.
std::string run_summary(const std::vector<LevelResult>& results);

// One line without its end, for a live display.
std::string progress_text(const Level& level, const LevelProgress& progress);

}  // namespace afd::client
