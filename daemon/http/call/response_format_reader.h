// SPDX-License-Identifier: Apache-2.0
#pragma once

// `response_format` in the body of a completion, of text or a chat.

#include <string_view>

#include "daemon/http/call/field_reader.h"
#include "proto/sampling.pb.h"

namespace afd::daemon {

// What is wrong with its form is in `fields`; the schema itself is the gateway's to judge. `body`:
// what `fields` was parsed from, with the members of the schema in their order, which is that of
// the answer.
void read_response_format(FieldReader& fields, std::string_view body, SamplingSettings& sampling);

}  // namespace afd::daemon
