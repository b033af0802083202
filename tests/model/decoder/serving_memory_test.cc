// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/serving_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

// Three parts in bf16 each, where one was (model/checkpoint/router_tensors.h).
TEST(ServingMemory, CountsThePartsOfAGate) {
    const test::TemporaryDirectory source;
    CheckpointBuilder builder(small_config());
    builder.write(source.path());
    const auto plain = ModelFiles::open(source.path()).value();
    const ServingMemory before = serving_memory(plain, {});
    const char* const gate = "model.layers.1.mlp.gate.weight";
    const size_t size = builder.tensor(gate).size();
    EXPECT_EQ(before.routers, 2 * 2 * size) << "two layers have one";
    builder.store_as_f32(gate, std::vector<float>(size, 0.1f));
    builder.write(source.path());
    const auto wide = ModelFiles::open(source.path()).value();
    const ServingMemory after = serving_memory(wide, {});
    EXPECT_EQ(after.attention, before.attention + 2 * 2 * size);
    EXPECT_EQ(after.routers, before.routers + 2 * 2 * size);
}

// Goal: what is stored in a form that nothing multiplies counts as what it becomes. Oracle: the
// same checkpoint in bf16.
TEST(ServingMemory, CountsAttentionStoredInFp8AsBf16) {
    const test::TemporaryDirectory source;
    CheckpointBuilder builder(small_config());
    builder.write(source.path());
    const auto plain = ModelFiles::open(source.path()).value();
    const uint64_t expected = serving_memory(plain, {}).attention;
    builder.store_as_fp8();
    builder.write(source.path());
    const auto fp8 = ModelFiles::open(source.path()).value();
    EXPECT_LT(fp8.tensors().total_bytes(), plain.tensors().total_bytes());
    EXPECT_EQ(serving_memory(fp8, fp8.config().quantisation).attention, expected);
}

}  // namespace
}  // namespace afd::model
