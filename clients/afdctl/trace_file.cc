// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/trace_file.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "proto/check.h"

namespace afd::client {
namespace {

constexpr uint32_t kDataThread = 0;

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Microseconds, to the nanosecond.
std::string us(uint64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

}  // namespace

Result<TraceFile> TraceFile::create(const std::string& path) {
    std::error_code ignored;
    const bool is_new = !std::filesystem::exists(path, ignored);
    // Behind what is there, which may be an older trace, or a pipe.
    std::ofstream file(path, std::ios::app);
    if (!file) {
        return afd::Error{Code::kInvalidArgument,
                          fmt::format("-o {}: cannot be written: {}", path, std::strerror(errno))};
    }
    return TraceFile(path, std::move(file), is_new);
}

void TraceFile::begin() {
    if (has_begun_) return;
    has_begun_ = true;
    std::error_code error;
    if (std::filesystem::is_regular_file(path_, error)) {
        std::filesystem::resize_file(path_, 0, error);
        if (error) file_.setstate(std::ios::badbit);
    }
    file_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
}

void TraceFile::discard() {
    AFD_ASSERT(!has_begun_, "%s is begun", path_.c_str());
    file_.close();
    if (!is_new_) return;
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
}

void TraceFile::add(const TraceEvents& events) {
    begin();
    const uint32_t process = process_of(events);
    num_lost_ += events.num_lost();
    for (const TraceEvent& event : events.events()) {
        ++num_events_;
        if (event.name() == "wait") {
            const uint32_t lane = 1 + event.micro_batch();
            name_lane(process, lane, fmt::format("micro-batch {}", event.micro_batch()));
            write_slice(event, events.role(), process, lane);
            continue;
        }
        const std::pair<std::string, uint64_t> slice(event.name(), event.start_ns());
        if (std::exchange(last_slices_[process], slice) != slice) {
            write_slice(event, events.role(), process, kDataThread);
        }
        write_arrows(arrows_.add(event, process));
    }
}

void TraceFile::write_slice(const TraceEvent& event,
                            const std::string& role,
                            uint32_t process,
                            uint32_t lane) {
    const char* colour = event.name() == "bubble" ? R"("cname":"terrible",)" : "";
    write(fmt::format(R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},{})"
                      R"("args":{{"session":{},"micro_batch":{},"layer":{},"round":{},)"
                      R"("rows":{}}}}})",
                      quoted(event.name()),
                      quoted(role),
                      us(event.start_ns()),
                      us(event.duration_ns()),
                      process,
                      lane,
                      colour,
                      event.session(),
                      event.micro_batch(),
                      event.layer(),
                      event.round(),
                      event.num_rows()));
}

// A flow is tied to the slice of the lane that is open at its time; its own ends are such times.
void TraceFile::write_arrows(const std::vector<RoundArrow>& arrows) {
    for (const RoundArrow& arrow : arrows) {
        const char* name = arrow.is_to_experts ? "to the experts" : "back";
        const uint64_t id = ++num_arrows_;
        write(
            fmt::format(R"({{"name":"{}","cat":"hop","ph":"s","id":{},"ts":{},"pid":{},"tid":{}}})",
                        name,
                        id,
                        us(arrow.from.ns),
                        arrow.from.process,
                        kDataThread));
        write(fmt::format(
            R"({{"name":"{}","cat":"hop","ph":"f","bp":"e","id":{},"ts":{},"pid":{},"tid":{}}})",
            name,
            id,
            us(arrow.to.ns),
            arrow.to.process,
            kDataThread));
    }
}

Result<> TraceFile::close() {
    begin();
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
        name_lane(found->second, kDataThread, "data thread");
    }
    return found->second;
}

void TraceFile::name_lane(uint32_t process, uint32_t lane, const std::string& name) {
    if (lanes_.insert({process, lane}).second) write_name("thread_name", process, lane, name);
}

void TraceFile::write_name(const char* what,
                           uint32_t process,
                           uint32_t lane,
                           const std::string& name) {
    write(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                      what,
                      process,
                      lane,
                      quoted(name)));
}

void TraceFile::write(const std::string& object) {
    file_ << (is_first_ ? "\n" : ",\n") << object;
    is_first_ = false;
}

}  // namespace afd::client
