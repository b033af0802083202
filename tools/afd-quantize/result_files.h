// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResultFiles: the shards of a planned checkpoint, written in parts. Several threads may write at
// once.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/status.h"
#include "tools/afd-quantize/quantise_plan.h"

namespace afd::tools {

class ResultFiles {
  public:
    // Whether all of them are there in full size, as open() makes them.
    static bool exist(const QuantisePlan& plan, const std::string& directory);

    // Makes the files in full size and empty, so that a full disk shows now; or, `goes_on`, takes
    // up those that are there. REQUIRES: plan outlives this; `goes_on`: exist().
    // Errors: those of model::file_error_code(); kResourceExhausted says how much is needed. What
    // was made until then is left empty.
    static Result<ResultFiles> open(const QuantisePlan& plan,
                                    const std::string& directory,
                                    bool goes_on);

    ResultFiles(ResultFiles&&) noexcept = default;
    ResultFiles(const ResultFiles&) = delete;
    ResultFiles& operator=(const ResultFiles&) = delete;
    ~ResultFiles();

    // Bytes [offset, offset + bytes.size()) of the planned tensor. REQUIRES: inside it.
    // Errors: kResourceExhausted, kUnavailable.
    Result<> write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) const;

    // Returns when everything written is on the disk. Errors: kUnavailable.
    Result<> sync() const;

  private:
    explicit ResultFiles(const QuantisePlan& plan) : plan_(&plan) {}
    Result<> open_shard(const std::string& directory, bool goes_on);
    Result<> make(size_t shard, const std::string& path);
    void give_room_back() const;

    const QuantisePlan* plan_;
    std::vector<std::string> paths_;
    std::vector<int> fds_;
};

}  // namespace afd::tools
