// SPDX-License-Identifier: Apache-2.0
#pragma once

// WithBlocks: kernels run with the blocks of other caches while it lives.

#include "ops/cpu/block_sizes.h"

namespace afd::ops::test {

// REQUIRES: no product runs while one is made or goes.
class WithBlocks {
  public:
    explicit WithBlocks(const cpu::BlockSizes& sizes) : before_(cpu::exchange_block_sizes(sizes)) {}
    ~WithBlocks() { cpu::exchange_block_sizes(before_); }
    WithBlocks(const WithBlocks&) = delete;
    WithBlocks& operator=(const WithBlocks&) = delete;

  private:
    cpu::BlockSizes before_;
};

}  // namespace afd::ops::test
