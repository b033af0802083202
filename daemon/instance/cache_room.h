// SPDX-License-Identifier: Apache-2.0
#pragma once

// CacheRoom: whether the file system of the weight cache has room for the layers that workers will
// pack into it. Without room a worker packs them into private memory; and where the file system is
// memory itself, what is written there cannot be dropped as that of a disk can.

#include <cstdint>
#include <string>

#include "model/decoder/expert_cache.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"

namespace afd::daemon {

struct CacheRoom {
    uint64_t all_bytes = 0;      // Of all layers.
    uint64_t missing_bytes = 0;  // Which those need that are not there yet.
    uint64_t free_bytes = UINT64_MAX;
    bool is_writable = true;  // By this user.
    bool is_memory = false;   // tmpfs or ramfs.

    uint64_t lacking_bytes() const {
        return missing_bytes > free_bytes ? missing_bytes - free_bytes : 0;
    }
    // What the start warns of, and the doctor; empty: there is room.
    std::string warning(const std::string& directory) const;
};

// As the kernel tells it of `directory`, or of the nearest one above that is there. Unknown is
// enough; where nothing can be written, nothing is free.
CacheRoom room_at(const std::string& directory, const model::CacheBytes& bytes);
// For the packed experts of a model.
CacheRoom room_for_experts(const std::string& directory,
                           const model::ModelFiles& files,
                           ops::NumericClass numeric_class);

}  // namespace afd::daemon
