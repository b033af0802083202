// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the three programs write their log: lines on stderr, through spdlog's default logger.
//
//   text: 2026-11-21 11:42:07.123 warn  ffn-0: who waits for whom ...   (coloured on a terminal)
//   json: {"time":"...","level":"warn","program":"ffn-0","pid":77,"message":"..."}

#include <string>

namespace afd::daemon {

// `program` names the speaker ("afdd", "attention-1", "ffn-0"). `level`: trace, debug, info, warn,
// error or off. `format`: text or json. REQUIRES: both valid (config_options.h checks them).
void set_up_logging(const std::string& program,
                    const std::string& level,
                    const std::string& format);

}  // namespace afd::daemon
