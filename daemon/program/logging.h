// SPDX-License-Identifier: Apache-2.0
#pragma once

// How afdd, its workers and their stand-ins write their log: lines on stderr, through spdlog's
// default logger.
//
//   text: 2026-11-21 11:42:07.123 warn  ffn-0: who waits for whom ...   (coloured on a terminal)
//   json: {"time":1.5,"level":"warning","program":"ffn-0","pid":77,"message":"..."}
//
// A line that concerns one request says which: in text "request 7: ...", in JSON "request":7; and
// what its client calls it, if that has said so: "request 7 (abc): ...", "request_id":"abc".
//
// Nobody waits for whoever reads the log (log_output.h): what finds no room is lost, and a line
// says how many were.
//
// Whoever logs sees neither spdlog nor the inside of fmt: compiling those in every file that says
// something was half of the time to compile the daemon.

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace afd::daemon {

// `program` names the speaker ("afdd", "attention-1", "ffn-0"). `level`: trace, debug, info, warn,
// error or off. `format`: text or json. Reads the time zone, which stays, and has SIGPIPE and
// SIGXFSZ ignored from now on: whoever reads the log, or a socket, may go away, and a file may
// reach its limit. REQUIRES: both valid (process_options.cc checks them).
void set_up_logging(const std::string& program,
                    const std::string& level,
                    const std::string& format);

// Lines below this level are not written from now on. May be called from any thread. False: there
// is no such level, and nothing changes.
bool set_log_level(const std::string& level);

// Whether lines of text name this process, too: "afdd[77]: ...". While another of its name lives,
// as during an upgrade. Those in JSON always do. May be called from any thread.
void show_pid_in_log(bool shows);

// log::warn("{} is gone", name): one line. May be called from any thread. What is below the level
// that was set costs a comparison.
namespace log {

enum class Level { kDebug, kInfo, kWarn, kError };

bool is_on(Level level);
void write(Level level, std::string_view line);
void write_of(uint64_t request, Level level, std::string_view line);
void write_of(std::string_view request_id, Level level, std::string_view line);

// What the client of a request calls it, from here to forget_request(): its lines say so.
void name_request(uint64_t request, std::string_view request_id);
void forget_request(uint64_t request);

template <typename... Args>
void line(Level level, fmt::format_string<Args...> text, Args&&... args) {
    if (is_on(level)) write(level, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
    line(Level::kDebug, text, std::forward<Args>(args)...);
}
template <typename... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
    line(Level::kInfo, text, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
    line(Level::kWarn, text, std::forward<Args>(args)...);
}
template <typename... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
    line(Level::kError, text, std::forward<Args>(args)...);
}

// The same of one request, by the gateway's number of it (flight_table.h).
template <typename... Args>
void of_request(uint64_t request, Level level, fmt::format_string<Args...> text, Args&&... args) {
    if (is_on(level)) write_of(request, level, fmt::format(text, std::forward<Args>(args)...));
}

// The same of a request that has only its client's name for it.
template <typename... Args>
void of_request(std::string_view request_id,
                Level level,
                fmt::format_string<Args...> text,
                Args&&... args) {
    if (is_on(level)) write_of(request_id, level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace log

}  // namespace afd::daemon
