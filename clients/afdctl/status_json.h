// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Status for programs: one JSON object with the field names of proto/client.proto.

#include <string>

#include "proto/client.pb.h"

namespace afd::client {

std::string status_json(const Status& status);

}  // namespace afd::client
