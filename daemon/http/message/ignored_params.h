// SPDX-License-Identifier: Apache-2.0
#pragma once

// X-Ignored-Params: the header of an answer that lists what of the request had no effect.

#include <string>
#include <vector>

#include "daemon/http/message/http_response.h"

namespace afd::daemon {

// Adds it to `headers`, unless `names` is empty: the first 32 of them, each as far as it can stand
// in a header.
void add_ignored_params(const std::vector<std::string>& names,
                        std::vector<HttpResponse::Header>& headers);

}  // namespace afd::daemon
