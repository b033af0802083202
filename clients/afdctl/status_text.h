// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Status for people: tables of at most 100 columns, for normal names.

#include <string>

#include "proto/client.pb.h"

namespace afd::client {

std::string status_text(const Status& status);

}  // namespace afd::client
