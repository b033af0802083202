// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an exposition in Prometheus' text format has, as a list in Markdown: name, type and help of
// each family. docs/metrics.md has the one of a live instance.

#include <string>

namespace afd::client {

// A family of another prefix ("vllm:") with the help of an earlier one is that one's other name.
std::string exposition_list(const std::string& exposition);

}  // namespace afd::client
