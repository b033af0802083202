// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/port_range.h"

#include <limits>
#include <optional>
#include <string_view>

#include "proto/failure.h"
#include "proto/typed_number.h"

namespace afd::daemon {

Result<PortRange> parse_port_range(const std::string& text) {
    if (text.empty()) return PortRange();
    const std::string_view view = text;
    if (const size_t dash = view.find('-'); dash != std::string_view::npos) {
        const uint64_t first = whole_number(view.substr(0, dash)).value_or(0);
        const uint64_t last = whole_number(view.substr(dash + 1)).value_or(0);
        if (first != 0 && first <= last && last <= std::numeric_limits<uint16_t>::max()) {
            return PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
        }
    }
    return invalid_argument("must be two ports, the lower one first, as in 7420-7499");
}

Result<> check_port_range(const std::string& value) {
    const Result<PortRange> range = parse_port_range(value);
    return range.ok() ? Result<>() : Result<>(range.error());
}

}  // namespace afd::daemon
