// SPDX-License-Identifier: Apache-2.0

// Nothing outside the caches is written, whatever cache_index holds.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::MlaCase;
using test::MlaCaseOptions;

// A cache whose ends are the ends of its pages: a byte before or behind it is not mapped.
class GuardedCache {
  public:
    explicit GuardedCache(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
        inner_ = (bytes + page_ - 1) / page_ * page_;
        map_ = static_cast<std::byte*>(
            mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_NE(map_, MAP_FAILED);
        EXPECT_EQ(mprotect(map_ + page_, inner_, PROT_READ | PROT_WRITE), 0);
        std::memset(map_ + page_, 0x7f, inner_);
    }
    GuardedCache(const GuardedCache&) = delete;
    GuardedCache& operator=(const GuardedCache&) = delete;
    ~GuardedCache() { munmap(map_, inner_ + 2 * page_); }

    std::byte* begin() const { return map_ + page_; }
    std::byte* end() const { return map_ + page_ + inner_; }

  private:
    size_t page_;
    size_t inner_ = 0;
    std::byte* map_ = nullptr;
};

// Goal: nothing is written outside the caches, whatever the index holds. Method: caches that end
// (or begin) at an unmapped page; valid first and last rows are written, every index just outside,
// and the extremes, are refused. Oracle: no fault, and after a refusal no changed byte.
TEST(MlaPrologV3Guard, LeavesTheMemoryAroundTheCachesAlone) {
    for (MlaCaseOptions options : test::all_scenarios()) {
        for (const std::string mode : {"PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ"}) {
            if (options.kv == 3 && mode.ends_with("NZ")) continue;
            options.cache_mode = mode;
            MlaCase one(options);
            const size_t bytes = one.kv_cache.bytes.size();
            const size_t key_bytes = one.kr_cache.bytes.size();
            const GuardedCache latents(bytes);
            const GuardedCache keys(key_bytes + 1);
            int64_t* index = one.cache_index.as<int64_t>();
            const size_t limit = mode.starts_with("PA_BLK")
                                     ? options.block_num
                                     : options.block_num * options.block_size;
            const auto last = static_cast<int64_t>(limit) - 1;
            for (const bool at_end : {true, false}) {
                MlaPrologV3Request r = one.request();
                r.kv_cache.data = at_end ? latents.end() - bytes : latents.begin();
                if (key_bytes != 0) {
                    r.kr_cache.data = at_end ? keys.end() - key_bytes : keys.begin();
                }
                index[0] = 0;
                index[1] = last;
                const MlaPrologV3Weights weights =
                    pack_mla_prolog_v3(r, NumericClass::kPortable).value();
                const Workspace workspace(mla_prolog_v3_workspace_bytes(weights.shape, 15));
                SerialParallel serial;
                EXPECT_TRUE(mla_prolog_v3(r, weights, workspace.bytes(), serial).ok());
                const std::vector<std::byte> before(latents.begin(), latents.end());
                for (const int64_t bad : {last + 1,
                                          int64_t{-2},
                                          std::numeric_limits<int64_t>::max(),
                                          std::numeric_limits<int64_t>::min()}) {
                    index[1] = bad;
                    EXPECT_FALSE(mla_prolog_v3(r, weights, workspace.bytes(), serial).ok());
                    EXPECT_FALSE(reference::mla_prolog_v3(r).ok());
                }
                EXPECT_TRUE(std::equal(before.begin(), before.end(), latents.begin()));
            }
        }
    }
}

}  // namespace
}  // namespace afd::ops
