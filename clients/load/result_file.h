// SPDX-License-Identifier: Apache-2.0
#pragma once

// The files that a load run leaves: result.json (the run, its levels with percentiles and
// histograms) and requests.csv (a line for each request). Their fields are documented in
// clients/README.md; a change of meaning changes kResultSchema.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "clients/load/http_target.h"
#include "clients/load/level_result.h"
#include "clients/load/load_options.h"
#include "clients/load/machine.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::client {

inline constexpr const char* kResultSchema = "afd-load/1";

struct LoadReport {
    LoadOptions options;
    Machine machine;
    // As it was before the first level: one of the two.
    Status server;
    std::optional<HttpTarget> http_server;
    std::chrono::system_clock::time_point started_at;
    std::vector<LevelResult> levels;
};

std::string result_json(const LoadReport& report);
std::string requests_csv(const LoadReport& report);

// Makes `directory` and takes it for this run, before anything is measured: it has no earlier
// result, and nobody else's is to come. Errors: kAlreadyExists, kPermissionDenied.
Result<> prepare_result_directory(const std::string& directory);

// Writes both files, each whole or not at all, and one also where the other cannot be written; a
// directory without result.json may be taken again. REQUIRES: prepare_result_directory().
// Errors: kResourceExhausted (disk): the first, with how to mend it.
Result<> write_result_files(const LoadReport& report);

}  // namespace afd::client
