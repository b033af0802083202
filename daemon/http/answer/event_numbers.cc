// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/event_numbers.h"

#include "daemon/http/message/json_text.h"
#include "proto/check.h"

namespace afd::daemon {

std::string EventNumbers::take(std::string_view events) {
    constexpr std::string_view kEnd = "\n\n";
    std::string numbered;
    while (!events.empty()) {
        const size_t end = events.find(kEnd);
        AFD_ASSERT(end != std::string_view::npos, "half an event of %zu bytes", events.size());
        const std::string_view event = events.substr(0, end + kEnd.size());
        events.remove_prefix(event.size());
        const bool is_comment = event.starts_with(':');
        if (!is_comment && ++num_made_ <= num_received_) continue;
        if (!is_comment) {
            numbered += "id: ";
            append_json_number(num_made_, numbered);
            numbered += '\n';
        }
        numbered += event;
    }
    return numbered;
}

}  // namespace afd::daemon
