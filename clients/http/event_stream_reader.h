// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventStreamReader: bytes of a text/event-stream as the data of its events, by the rules of the
// WHATWG's HTML standard (9.2.6): lines end with CR, LF or both, a blank line ends an event,
// several lines of data are joined by LF, comments and other fields mean nothing here, and an event
// that the stream ends in is none. The bytes may be cut anywhere. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace afd::client {

class EventStreamReader {
  public:
    // Of one event; a server that sends more is not to fill this memory.
    static constexpr size_t kEventBytesMax = size_t{16} << 20;

    // Appends the data of the events that `bytes` complete to `events`.
    // Errors: kDataLoss: an event is too large.
    Result<> append(std::string_view bytes, std::vector<std::string>& events);

  private:
    void take_line(std::vector<std::string>& events);

    std::string line_;  // Not ended yet.
    std::string data_;  // Of the event that has not ended yet.
    bool has_data_ = false;
    bool is_after_cr_ = false;  // An LF now belongs to the line before.
    bool is_first_line_ = true;
};

}  // namespace afd::client
