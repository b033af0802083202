// SPDX-License-Identifier: Apache-2.0
#include "model/weight_cache/whole_pages.h"

#include <algorithm>

#include "model/safetensors/write_at.h"
#include "proto/check.h"

namespace afd::model {

uint64_t WholePages::bytes_of(uint64_t page) const {
    return std::min(kBytes, file_bytes_ - page * kBytes);
}

int WholePages::write(uint64_t offset, std::span<const std::byte> bytes, uint64_t extent) {
    AFD_ASSERT(bytes.size() <= extent && offset + extent <= file_bytes_,
               "%zu bytes as %zu at %zu of %zu",
               bytes.size(),
               static_cast<size_t>(extent),
               static_cast<size_t>(offset),
               static_cast<size_t>(file_bytes_));
    for (uint64_t at = offset; at < offset + extent;) {
        const uint64_t page = at / kBytes;
        const uint64_t count = std::min((page + 1) * kBytes, offset + extent) - at;
        const auto part = bytes.first(std::min<uint64_t>(count, bytes.size()));
        // Most pages lie inside of what is given.
        const bool is_whole = part.size() == bytes_of(page);
        const int error = is_whole ? write_at(fd_, at, part) : gather(at, part, count);
        if (error != 0) return error;
        bytes = bytes.subspan(part.size());
        at += count;
    }
    return 0;
}

int WholePages::gather(uint64_t offset, std::span<const std::byte> bytes, uint64_t extent) {
    const uint64_t index = offset / kBytes;
    std::unique_ptr<std::byte[]> whole;
    {
        const std::scoped_lock lock(mutex_);
        Page& page = begun_[index];
        if (!page.bytes) page.bytes = std::make_unique<std::byte[]>(bytes_of(index));
        std::copy(bytes.begin(), bytes.end(), page.bytes.get() + offset % kBytes);
        page.num_given += extent;
        if (page.num_given < bytes_of(index)) return 0;
        whole = std::move(page.bytes);
        begun_.erase(index);
    }
    return write_at(fd_, index * kBytes, {whole.get(), bytes_of(index)});
}

}  // namespace afd::model
