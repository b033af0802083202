// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/replicas.h"

#include <fstream>

#include "tests/integration/instance.h"

namespace afd::test {
namespace {

constexpr uint32_t kDemoExperts = 16;

}  // namespace

std::string replicated_placement(uint32_t num_ffn_workers) {
    std::string ranks = "0";
    for (uint32_t rank = 1; rank < num_ffn_workers; ++rank) ranks += ", " + std::to_string(rank);
    const std::string path = make_directory() + "/placement.json";
    std::ofstream file(path);
    file << "{\"experts\": [[" << ranks << "]";
    for (uint32_t expert = 1; expert < kDemoExperts; ++expert) file << ", [" << ranks << "]";
    file << "]}";
    return path;
}

}  // namespace afd::test
