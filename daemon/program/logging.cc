// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/logging.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace afd::daemon {

namespace {

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
    auto logger = std::make_shared<spdlog::logger>(
        program, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    if (format == "json") {
        logger->set_formatter(std::make_unique<JsonFormatter>(program));
    } else {
        logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-5!l%$ %n: %v");
    }
    logger->set_level(spdlog::level::from_str(level));
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
}

bool log::is_on(Level level) {
    return spdlog::should_log(spdlog_level(level));
}

// As a string and not as a format, so that braces in a message stay braces.
void log::write(Level level, std::string_view line) {
    spdlog::default_logger_raw()->log(spdlog_level(level),
                                      spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace afd::daemon
