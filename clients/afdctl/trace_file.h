// SPDX-License-Identifier: Apache-2.0
#pragma once

// TraceFile: a trace as JSON in the trace-event format that Perfetto (ui.perfetto.dev) and
// chrome://tracing open. A process is a worker; a track is a micro-batch of an attention worker, or
// at an FFN worker what it does for one session's micro-batch; times are CLOCK_MONOTONIC.

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::client {

class TraceFile {
  public:
    // Errors: kInvalidArgument, the file cannot be created.
    static Result<TraceFile> create(const std::string& path);

    void add(const TraceEvents& events);

    // Completes the file. Errors: kUnavailable, not all of it could be written.
    Result<> close();

    uint64_t num_events() const { return num_events_; }
    uint64_t num_lost() const { return num_lost_; }
    size_t num_workers() const { return processes_.size(); }

  private:
    TraceFile(std::string path, std::ofstream file)
        : path_(std::move(path)), file_(std::move(file)) {}

    uint32_t process_of(const TraceEvents& events);
    uint32_t track_of(uint32_t process, const std::string& role, const TraceEvent& event);
    void write_name(const char* what, uint32_t process, uint32_t track, const std::string& name);
    void write(const std::string& object);

    std::string path_;
    std::ofstream file_;
    bool is_first_ = true;
    std::map<std::pair<std::string, uint32_t>, uint32_t> processes_;  // By role and index.
    std::set<std::pair<uint32_t, uint32_t>> tracks_;                  // Process and track.
    uint64_t num_events_ = 0;
    uint64_t num_lost_ = 0;
};

}  // namespace afd::client
