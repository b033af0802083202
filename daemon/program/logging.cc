// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/logging.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/details/os.h>
#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "daemon/program/log_output.h"

namespace afd::daemon {

namespace {

// The request that the line of this thread is about; 0: none. The formatter runs within the call.
thread_local uint64_t current_request = 0;
thread_local std::string_view current_request_id;

// By the number of their request.
class RequestNames {
  public:
    void set(uint64_t request, std::string_view name) {
        const std::lock_guard lock(mutex_);
        names_.insert_or_assign(request, std::string(name));
    }
    void erase(uint64_t request) {
        const std::lock_guard lock(mutex_);
        names_.erase(request);
    }
    std::string of(uint64_t request) {
        const std::lock_guard lock(mutex_);
        const auto at = names_.find(request);
        return at == names_.end() ? std::string() : at->second;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<uint64_t, std::string> names_;
};

RequestNames& request_names() {
    static RequestNames names;
    return names;
}

// Set once, before there are threads.
bool is_json = false;

std::atomic<bool> shows_pid = false;

constexpr const char* kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};

// One JSON object a line. Bytes that are not UTF-8 are replaced, so a line always parses.
class JsonFormatter final : public spdlog::formatter {
  public:
    explicit JsonFormatter(std::string program) : program_(std::move(program)) {}

    void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
        const auto seconds = std::chrono::duration<double>(message.time.time_since_epoch()).count();
        const auto level = spdlog::level::to_string_view(message.level);
        nlohmann::ordered_json line;
        line["time"] = seconds;
        line["level"] = std::string(level.data(), level.size());
        line["program"] = program_;
        line["pid"] = ::getpid();
        if (current_request != 0) line["request"] = current_request;
        if (!current_request_id.empty()) line["request_id"] = current_request_id;
        line["message"] = std::string(message.payload.data(), message.payload.size());
        const std::string text =
            line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
        out.append(text.data(), text.data() + text.size());
    }

    std::unique_ptr<spdlog::formatter> clone() const override {
        return std::make_unique<JsonFormatter>(program_);
    }

  private:
    std::string program_;
};

// A column of levels, as the configuration calls them: spdlog's own names are longer.
class LevelName final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message,
                const std::tm& /*when*/,
                spdlog::memory_buf_t& out) override {
        fmt::format_to(std::back_inserter(out), "{:5}", kLevels[message.level]);
    }
    std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
        return std::make_unique<LevelName>();
    }
};

// Who speaks.
class Speaker final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message,
                const std::tm& /*when*/,
                spdlog::memory_buf_t& out) override {
        out.append(message.logger_name.begin(), message.logger_name.end());
        if (shows_pid) fmt::format_to(std::back_inserter(out), "[{}]", ::getpid());
    }
    std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
        return std::make_unique<Speaker>();
    }
};

// The colour of a level's name on a terminal.
std::string_view colour_of(spdlog::level::level_enum level) {
    switch (level) {
        case spdlog::level::debug:
            return "\033[36m";
        case spdlog::level::info:
            return "\033[32m";
        case spdlog::level::warn:
            return "\033[33m\033[1m";
        case spdlog::level::err:
            return "\033[31m\033[1m";
        default:
            return "";
    }
}

// Lines to stderr. Those that find no room are counted, and the next one that does is preceded by
// one that says how many.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        if (num_lost_ > 0 && say_lost(message)) num_lost_ = 0;
        if (num_lost_ > 0 || !put(message)) ++num_lost_;
    }
    void flush_() override {}

  private:
    // Before `next`, whose request it does not concern.
    bool say_lost(const spdlog::details::log_msg& next) {
        const uint64_t request = std::exchange(current_request, 0);
        const std::string_view request_id = std::exchange(current_request_id, {});
        const std::string lost =
            fmt::format("no room for lines of this log, which are lost: {}", num_lost_);
        const bool is_said = put({next.time, {}, next.logger_name, spdlog::level::warn, lost});
        current_request = request;
        current_request_id = request_id;
        return is_said;
    }

    bool put(const spdlog::details::log_msg& message) {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        const std::string_view text(line.data(), line.size());
        const size_t begin = message.color_range_start;
        const size_t end = message.color_range_end;
        if (!is_coloured_ || begin >= end) return output_.write(text);
        return output_.write(fmt::format("{}{}{}\033[m{}",
                                         text.substr(0, begin),
                                         colour_of(message.level),
                                         text.substr(begin, end - begin),
                                         text.substr(end)));
    }

    LogOutput output_{STDERR_FILENO};
    const bool is_coloured_ =
        spdlog::details::os::in_terminal(stderr) && spdlog::details::os::is_color_terminal();
    uint64_t num_lost_ = 0;
};

spdlog::level::level_enum spdlog_level(log::Level level) {
    switch (level) {
        case log::Level::kDebug:
            return spdlog::level::debug;
        case log::Level::kInfo:
            return spdlog::level::info;
        case log::Level::kWarn:
            return spdlog::level::warn;
        case log::Level::kError:
            return spdlog::level::err;
    }
    return spdlog::level::err;
}

}  // namespace

void set_up_logging(const std::string& program,
                    const std::string& level,
                    const std::string& format) {
    ::signal(SIGPIPE, SIG_IGN);
    // Writing beyond the limit of a file's size is then an error, EFBIG, with a message.
    ::signal(SIGXFSZ, SIG_IGN);
    // A worker may open no file later (daemon/worker/system_calls.h), the zone's neither.
    ::tzset();
    auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<StderrSink>());
    is_json = format == "json";
    if (is_json) {
        logger->set_formatter(std::make_unique<JsonFormatter>(program));
    } else {
        auto formatter = std::make_unique<spdlog::pattern_formatter>();
        formatter->add_flag<LevelName>('*').add_flag<Speaker>('&').set_pattern(
            "%Y-%m-%d %H:%M:%S.%e %^%*%$ %&: %v");
        logger->set_formatter(std::move(formatter));
    }
    logger->set_level(spdlog::level::from_str(level));
    spdlog::set_default_logger(std::move(logger));
}

bool set_log_level(const std::string& level) {
    const bool is_known = std::any_of(
        std::begin(kLevels), std::end(kLevels), [&](const char* one) { return level == one; });
    if (is_known) spdlog::set_level(spdlog::level::from_str(level));
    return is_known;
}

void show_pid_in_log(bool shows) {
    shows_pid = shows;
}

bool log::is_on(Level level) {
    return spdlog::should_log(spdlog_level(level));
}

// As a string and not as a format, so that braces in a message stay braces.
void log::write(Level level, std::string_view line) {
    spdlog::default_logger_raw()->log(spdlog_level(level),
                                      spdlog::string_view_t(line.data(), line.size()));
}

void log::write_of(uint64_t request, Level level, std::string_view line) {
    const std::string name = request_names().of(request);
    if (is_json) {
        current_request = request;
        current_request_id = name;
        write(level, line);
        current_request = 0;
        current_request_id = {};
    } else if (name.empty()) {
        write(level, fmt::format("request {}: {}", request, line));
    } else {
        write(level, fmt::format("request {} ({}): {}", request, name, line));
    }
}

void log::write_of(std::string_view request_id, Level level, std::string_view line) {
    if (is_json) {
        current_request_id = request_id;
        write(level, line);
        current_request_id = {};
    } else {
        write(level, fmt::format("request ({}): {}", request_id, line));
    }
}

void log::name_request(uint64_t request, std::string_view request_id) {
    request_names().set(request, request_id);
}

void log::forget_request(uint64_t request) {
    request_names().erase(request);
}

}  // namespace afd::daemon
