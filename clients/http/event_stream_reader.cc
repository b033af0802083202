// SPDX-License-Identifier: Apache-2.0
#include "clients/http/event_stream_reader.h"

#include <algorithm>
#include <utility>

namespace afd::client {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

Result<> EventStreamReader::append(std::string_view bytes, std::vector<std::string>& events) {
    while (!bytes.empty()) {
        if (std::exchange(is_after_cr_, false) && bytes.front() == '\n') {
            bytes.remove_prefix(1);
            continue;
        }
        const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
        line_.append(bytes.substr(0, end));
        if (line_.size() + data_.size() > kEventBytesMax) {
            return afd::Error{
                Code::kDataLoss,
                "an event has more than " + std::to_string(kEventBytesMax) + " bytes"};
        }
        if (end == bytes.size()) return {};
        is_after_cr_ = bytes[end] == '\r';
        bytes.remove_prefix(end + 1);
        take_line(events);
    }
    return {};
}

void EventStreamReader::take_line(std::vector<std::string>& events) {
    if (std::exchange(is_first_line_, false) && line_.starts_with(kByteOrderMark)) {
        line_.erase(0, kByteOrderMark.size());
    }
    if (line_.empty()) {
        if (std::exchange(has_data_, false)) events.push_back(std::exchange(data_, {}));
        return;
    }
    const size_t colon = std::min(line_.find(':'), line_.size());
    if (std::string_view(line_).substr(0, colon) == "data") {
        std::string_view value = std::string_view(line_).substr(std::min(colon + 1, line_.size()));
        if (value.starts_with(' ')) value.remove_prefix(1);
        if (has_data_) data_ += '\n';
        data_ += value;
        has_data_ = true;
    }
    line_.clear();
}

}  // namespace afd::client
