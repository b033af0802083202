// SPDX-License-Identifier: Apache-2.0
#pragma once

// The page at "/": a prompt box that streams, and live figures of the instance. One HTML text with
// its style and script; it loads nothing from anywhere else, and works offline.

#include <string_view>

#include "daemon/http/message/http_response.h"

namespace afd::daemon {

HttpResponse answer_page();

// Its script, in page_script.cc.
extern const std::string_view kPageScript;

}  // namespace afd::daemon
