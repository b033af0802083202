// SPDX-License-Identifier: Apache-2.0
#pragma once

// `response_format` in the body of a completion, of text or a chat.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/call/field_reader.h"
#include "proto/sampling.pb.h"

namespace afd::daemon {

// What is wrong with its form is in `fields`; the schema itself is for judge_response_format().
// `body`: what `fields` was parsed from, with the members of the schema in their order, which is
// that of the answer. `ignored`: gets the places in the schema that the answer is not held to.
void read_response_format(FieldReader& fields,
                          std::string_view body,
                          SamplingSettings& sampling,
                          std::vector<std::string>& ignored);

// The same places of a schema that is the field `path`. One that cannot be read has none.
void note_ignored(const std::string& schema,
                  const std::string& path,
                  std::vector<std::string>& ignored);

// Why an answer of the format that was read cannot be, in the gateway's words. Nothing: it can, or
// none was asked for. Judged where the body is read: what is refused takes none of the loop's time.
std::optional<ApiError> judge_response_format(const SamplingSettings& sampling);

}  // namespace afd::daemon
