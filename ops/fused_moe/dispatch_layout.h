// SPDX-License-Identifier: Apache-2.0
#pragma once

// DispatchLayout: where the rows of one routing go, kept for further calls with the same routing
// (another layer's, say), which then skip the work of laying out.
//
// It is taken from a ticket (FusedMoe::share_layout) and given to later calls (MoeInput::layout).
// Whether a call's routing is the same is told by the key, never by comparing all ids: the caller
// raises the generation whenever it writes the ids anew.

#include <cstdint>
#include <utility>

#include "proto/status.h"

namespace afd::ops {

struct LayoutKey {
    const void* topk_ids = nullptr;  // The caller's array, of either dtype.
    uint64_t ids_generation = 0;
    uint64_t placement_epoch = 0;  // Of the map from logical experts to where they are.
    uint32_t num_tokens = 0;
    uint32_t top_k = 0;
    uint32_t num_shared = 0;
};

// Errors: kInvalidArgument: the first field in which `wanted` differs, with both values.
Result<> check_same_layout(const LayoutKey& have, const LayoutKey& wanted);

// The part that made a layout and keeps what it says.
class LayoutOwner {
  public:
    // Called by DispatchLayout only.
    virtual void release_layout(uint32_t index) = 0;

  protected:
    ~LayoutOwner() = default;
};

// Move-only; its end gives the layout back. Its owner outlives it.
class DispatchLayout {
  public:
    DispatchLayout() = default;
    DispatchLayout(LayoutOwner* owner, uint32_t index) : owner_(owner), index_(index) {}
    DispatchLayout(DispatchLayout&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), index_(other.index_) {}
    DispatchLayout& operator=(DispatchLayout&& other) noexcept {
        std::swap(owner_, other.owner_);
        std::swap(index_, other.index_);
        return *this;
    }
    ~DispatchLayout() {
        if (owner_ != nullptr) owner_->release_layout(index_);
    }

    bool valid() const { return owner_ != nullptr; }
    const LayoutOwner* owner() const { return owner_; }
    uint32_t index() const { return index_; }

  private:
    LayoutOwner* owner_ = nullptr;
    uint32_t index_ = 0;
};

}  // namespace afd::ops
