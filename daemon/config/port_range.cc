// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/port_range.h"

#include <charconv>

#include "proto/failure.h"

namespace afd::daemon {

Result<PortRange> parse_port_range(const std::string& text) {
    PortRange range;
    if (text.empty()) return range;
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, range.first);
    const bool has_dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
    const auto last = std::from_chars(has_dash ? first.ptr + 1 : end, end, range.last);
    const bool is_whole = has_dash && last.ec == std::errc() && last.ptr == end;
    if (is_whole && range.first != 0 && range.first <= range.last) return range;
    return invalid_argument("must be two ports, the lower one first, as in 7420-7499");
}

Result<> check_port_range(const std::string& value) {
    const Result<PortRange> range = parse_port_range(value);
    return range.ok() ? Result<>() : Result<>(range.error());
}

}  // namespace afd::daemon
