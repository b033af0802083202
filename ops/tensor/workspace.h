// SPDX-License-Identifier: Apache-2.0
#pragma once

// Workspace: the scratch memory of operators, sized at set-up so that the steady state allocates
// nothing.
//
// An operator that needs scratch has a function `..._workspace_bytes(...)` that states the bytes
// for its largest call. The caller reserves the maximum over its operators once and passes
// `workspace.bytes()`; contents do not survive a call. One workspace serves one call at a time.
// Its memory is in huge pages where the kernel gives them.

#include <cstddef>
#include <memory>
#include <span>

#include "ops/tensor/huge_memory.h"
#include "proto/check.h"

namespace afd::ops {

inline constexpr size_t kWorkspaceAlignment = 64;  // One cache line and one zmm register.

constexpr size_t workspace_round_up(size_t bytes) {
    return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Bytes that WorkspaceCursor::take<T>(count) uses.
template <typename T>
constexpr size_t workspace_bytes_of(size_t count) {
    return workspace_round_up(count * sizeof(T));
}

class Workspace {
  public:
    Workspace() = default;
    explicit Workspace(size_t bytes) { reserve(bytes); }

    // Grows to at least `bytes`; earlier contents are lost. For set-up only. That there is no
    // memory for it ends the process.
    void reserve(size_t bytes) {
        const bool is_there = try_reserve(bytes);
        AFD_ASSERT(is_there, "no memory for a workspace of %zu bytes", bytes);
    }

    // The same, or false and everything as it was, if there is no memory for it.
    [[nodiscard]] bool try_reserve(size_t bytes) {
        if (bytes <= size_) return true;
        const size_t size = workspace_round_up(bytes);
        auto* data = static_cast<std::byte*>(allocate_huge(size));
        if (data == nullptr) return false;
        data_ = {data, Free{size}};
        size_ = size;
        return true;
    }

    std::span<std::byte> bytes() const { return {data_.get(), size_}; }

  private:
    struct Free {
        size_t bytes;
        void operator()(std::byte* data) const { free_huge(data, bytes); }
    };
    std::unique_ptr<std::byte, Free> data_;
    size_t size_ = 0;
};

// Cuts aligned arrays off a workspace, in order.
class WorkspaceCursor {
  public:
    explicit WorkspaceCursor(std::span<std::byte> bytes) : rest_(bytes) {}

    template <typename T>
    T* take(size_t count) {
        const size_t bytes = workspace_bytes_of<T>(count);
        AFD_ASSERT(bytes <= rest_.size(),
                   "workspace too small: %zu more bytes needed, %zu left",
                   bytes,
                   rest_.size());
        T* array = reinterpret_cast<T*>(rest_.data());
        rest_ = rest_.subspan(bytes);
        return array;
    }

    std::span<std::byte> rest() const { return rest_; }

  private:
    std::span<std::byte> rest_;
};

}  // namespace afd::ops
