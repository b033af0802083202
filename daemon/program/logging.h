// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the three programs write their log: lines on stderr, through spdlog's default logger.
//
//   text: 2026-11-21 11:42:07.123 warn  ffn-0: who waits for whom ...   (coloured on a terminal)
//   json: {"time":"...","level":"warn","program":"ffn-0","pid":77,"message":"..."}

//
// Who logs sees neither spdlog nor the inside of fmt: compiling those in every file that says
// something was half of the time to compile the daemon.

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace afd::daemon {

// `program` names the speaker ("afdd", "attention-1", "ffn-0"). `level`: trace, debug, info, warn,
// error or off. `format`: text or json. REQUIRES: both valid (process_options.cc checks them).
void set_up_logging(const std::string& program,
                    const std::string& level,
                    const std::string& format);

// log::warn("{} is gone", name): one line. May be called from any thread. What is below the level
// that was set costs a comparison.
namespace log {

enum class Level { kDebug, kInfo, kWarn, kError };

bool is_on(Level level);
void write(Level level, std::string_view line);

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

}  // namespace log

}  // namespace afd::daemon
