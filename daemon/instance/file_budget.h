// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the files that afdd may have open are shared out. Clients must not hold the descriptors that
// a worker needs to be started again: connections get what the workers and afdd itself leave. The
// doctor reckons as the afdd that serves does.

#include <algorithm>
#include <cstddef>

#include "daemon/loop/descriptor_limit.h"
#include "daemon/supervisor/visitors.h"

namespace afd::daemon {

// Input, output and errors, which every process has.
inline constexpr size_t kStandardFiles = 3;
// However few files can be opened.
inline constexpr size_t kConnectionsMin = 4;
// Of each worker, as long as there is a place for it: four segments and a doorbell;
inline constexpr size_t kFilesOfPlace = 5;
// of its process: a socket, and two more while it starts.
inline constexpr size_t kFilesOfProcess = 3;

// Kept free for the workers: their processes, the visitors of the control socket, files that are
// open for a moment, the memory of two-phase rounds (which go through the windows when there is
// none).
constexpr size_t num_files_for_workers(size_t num_workers) {
    return kFilesOfProcess * num_workers + Visitors::num_max(num_workers) + 64;
}

// Connections that are possible with `num_free` descriptors.
constexpr size_t num_connections_within(size_t num_free, size_t num_workers) {
    const size_t num_reserved = num_files_for_workers(num_workers);
    return std::max(kConnectionsMin, num_free > num_reserved ? num_free - num_reserved : 0);
}

// What afdd has open before its first process and connection, at most.
constexpr size_t num_files_at_start(size_t num_workers) {
    return kFilesOfPlace * num_workers + kDescriptorsMin;
}

// What afdd opens to serve anybody at all: with less, workers would be started for ever.
constexpr size_t num_files_min(size_t num_workers) {
    return num_files_at_start(num_workers) + kFilesOfProcess * num_workers + kConnectionsMin;
}

// Files that may be open where so many connections are possible.
constexpr size_t num_files_for(size_t num_connections, size_t num_workers) {
    return num_connections + num_files_for_workers(num_workers) + num_files_at_start(num_workers);
}

}  // namespace afd::daemon
