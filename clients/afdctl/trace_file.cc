// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/trace_file.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace afd::client {
namespace {

// Tracks of a session at an FFN worker follow each other; a session has at most 64 micro-batches.
constexpr uint32_t kTracksPerSession = 65;

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Microseconds, to the nanosecond.
std::string us(uint64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

}  // namespace

Result<TraceFile> TraceFile::create(const std::string& path) {
    std::ofstream file(path, std::ios::trunc);
    if (!file) {
        return afd::Error{Code::kInvalidArgument,
                          fmt::format("-o {}: cannot be written: {}", path, std::strerror(errno))};
    }
    file << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    return TraceFile(path, std::move(file));
}

void TraceFile::add(const TraceEvents& events) {
    const uint32_t process = process_of(events);
    num_lost_ += events.num_lost();
    for (const TraceEvent& event : events.events()) {
        const uint32_t track = track_of(process, events.role(), event);
        write(fmt::format(R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},)"
                          R"("args":{{"session":{},"micro_batch":{},"layer":{},"round":{},)"
                          R"("rows":{}}}}})",
                          quoted(event.name()),
                          quoted(events.role()),
                          us(event.start_ns()),
                          us(event.duration_ns()),
                          process,
                          track,
                          event.session(),
                          event.micro_batch(),
                          event.layer(),
                          event.round(),
                          event.num_rows()));
        ++num_events_;
    }
}

Result<> TraceFile::close() {
    file_ << "\n]}\n";
    file_.close();
    if (file_.good()) return {};
    return afd::Error{
        Code::kUnavailable,
        fmt::format("{}: not all of the trace could be written: {}", path_, std::strerror(errno))};
}

uint32_t TraceFile::process_of(const TraceEvents& events) {
    const auto [found, is_new] = processes_.try_emplace(
        {events.role(), events.index()}, static_cast<uint32_t>(processes_.size()) + 1);
    if (is_new) {
        write_name(
            "process_name", found->second, 0, fmt::format("{} {}", events.role(), events.index()));
    }
    return found->second;
}

uint32_t TraceFile::track_of(uint32_t process, const std::string& role, const TraceEvent& event) {
    const bool is_ffn = role == "ffn";
    const bool is_block = is_ffn && event.round() == 0;
    const uint32_t track =
        is_block ? 0 : 1 + event.micro_batch() + (is_ffn ? event.session() * kTracksPerSession : 0);
    if (tracks_.insert({process, track}).second) {
        const std::string lane = fmt::format("micro-batch {}", event.micro_batch());
        const std::string name = is_block ? "two-phase rounds"
                                 : is_ffn ? fmt::format("session {}, {}", event.session(), lane)
                                          : lane;
        write_name("thread_name", process, track, name);
    }
    return track;
}

void TraceFile::write_name(const char* what,
                           uint32_t process,
                           uint32_t track,
                           const std::string& name) {
    write(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                      what,
                      process,
                      track,
                      quoted(name)));
}

void TraceFile::write(const std::string& object) {
    file_ << (is_first_ ? "\n" : ",\n") << object;
    is_first_ = false;
}

}  // namespace afd::client
