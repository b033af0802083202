// SPDX-License-Identifier: Apache-2.0
#pragma once

// TraceFile: a trace as JSON in the trace-event format that Perfetto (ui.perfetto.dev) and
// chrome://tracing open; times are CLOCK_MONOTONIC.
//
// A process is a worker. Its first lane is its data thread: what it does, one after the other, and
// in red its bubbles. At an attention worker there is a lane for each micro-batch, with the time
// that it is with the experts. Arrows are the hops of a round: from the dispatch to each pass that
// takes it, and from where a pass returns it to the combine.

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "clients/afdctl/round_arrows.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::client {

class TraceFile {
  public:
    // What the file holds stays until there is something of the trace to write.
    // Errors: kInvalidArgument, the file cannot be written.
    static Result<TraceFile> create(const std::string& path);

    void add(const TraceEvents& events);
    bool has_begun() const { return has_begun_; }

    // Completes the file. Errors: kUnavailable, not all of it could be written.
    Result<> close();
    // Leaves everything as it was before create(). REQUIRES: nothing was added.
    void discard();

    uint64_t num_events() const { return num_events_; }
    uint64_t num_lost() const { return num_lost_; }
    size_t num_workers() const { return processes_.size(); }  // That did something.

  private:
    TraceFile(std::string path, std::ofstream file, bool is_new)
        : path_(std::move(path)), file_(std::move(file)), is_new_(is_new) {}

    void begin();
    uint32_t process_of(const TraceEvents& events);
    void name_lane(uint32_t process, uint32_t lane, const std::string& name);
    void write_slice(const TraceEvent& event,
                     const std::string& role,
                     uint32_t process,
                     uint32_t lane);
    void write_arrows(const std::vector<RoundArrow>& arrows);
    void write_name(const char* what, uint32_t process, uint32_t lane, const std::string& name);
    void write(const std::string& object);

    std::string path_;
    std::ofstream file_;
    bool is_new_;  // create() made it.
    bool has_begun_ = false;
    bool is_first_ = true;
    std::map<std::pair<std::string, uint32_t>, uint32_t> processes_;  // By role and index.
    std::set<std::pair<uint32_t, uint32_t>> lanes_;                   // Process and lane.
    // Of each process, the last slice of its data thread: a pass is reported once for each of its
    // descriptors, and drawn once.
    std::map<uint32_t, std::pair<std::string, uint64_t>> last_slices_;
    RoundArrows arrows_;
    uint64_t num_arrows_ = 0;
    uint64_t num_events_ = 0;
    uint64_t num_lost_ = 0;
};

}  // namespace afd::client
