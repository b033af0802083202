// SPDX-License-Identifier: Apache-2.0
//
// The digest of a model.
//
// Goal: no bit of the weights or the configuration changes without it, and what was kept of files
// that were others is not believed. Oracle: digests of before, and how many bytes were read.

#include "model/weight_cache/model_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "model/checkpoint/tensor_store.h"
#include "model/family/model_files.h"
#include "model/safetensors/safetensors_writer.h"
#include "model/weight_cache/file_lock.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Times of files are as coarse as a tick of the kernel, 10 ms at most.
void wait_for_another_time() {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

void flip_bit(const std::string& path, uint64_t offset) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(stream.get() ^ 16);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(byte);
}

class ModelDigestTest : public ::testing::Test {
  protected:
    ModelDigestTest() { CheckpointBuilder(small_config()).write(model_.path()); }

    std::string weights() const { return model_.path("model.safetensors"); }
    std::string cache() const { return directory_.path("cache"); }

    // Of the model as it is now; `num_read`: bytes.
    struct Found {
        std::string digest;
        uint64_t num_read = 0;
        std::string why_not_kept;
    };
    Found find(const std::string& cache_directory,
               unsigned num_threads = 1,
               const std::string& config = "{}") const {
        const TensorFiles tensors = TensorFiles::open(model_.path()).value();
        ModelDigest digest(tensors, config, cache_directory);
        const auto computed = digest.compute(num_threads);
        EXPECT_TRUE(computed.ok()) << computed.error().message;
        return {.digest = computed.value(),
                .num_read = digest.bytes_read(),
                .why_not_kept = digest.why_not_kept()};
    }
    uint64_t num_bytes() const { return TensorFiles::open(model_.path()).value().total_bytes(); }
    std::string kept_file() const {
        for (const auto& entry : fs::directory_iterator(cache() + "/digests")) {
            if (entry.path().extension() == ".digest") return entry.path();
        }
        return {};
    }

    const test::TemporaryDirectory model_;
    const test::TemporaryDirectory directory_;
};

TEST_F(ModelDigestTest, EveryBitOfTheWeightsCounts) {
    const ModelFiles files = ModelFiles::open(model_.path()).value();
    const std::string digest = find("").digest;
    EXPECT_EQ(digest.size(), 16U);
    size_t num_flipped = 0;
    for (const TensorInfo* tensor : files.tensors().list()) {
        const uint64_t bytes = tensor->end - tensor->begin;
        if (bytes < 1024) continue;
        // Beside the samples of ModelFiles::identity().
        const uint64_t offset = tensor->begin + bytes / 4 + num_flipped % 64;
        flip_bit(weights(), offset);
        EXPECT_NE(find("").digest, digest) << tensor->name;
        if (num_flipped == 0) {
            EXPECT_EQ(ModelFiles::open(model_.path()).value().identity(), files.identity());
        }
        flip_bit(weights(), offset);
        ++num_flipped;
    }
    EXPECT_GT(num_flipped, 20U);
    EXPECT_EQ(find("").digest, digest);
}

TEST_F(ModelDigestTest, TheConfigurationCounts) {
    EXPECT_NE(find("", 1, "{\"a\": 1}").digest, find("", 1, "{\"a\": 2}").digest);
}

// Method: a tensor of several pieces, and more threads than pieces.
TEST_F(ModelDigestTest, IsTheSameWithAnyNumberOfThreads) {
    CheckpointBuilder builder(small_config());
    builder.add("large.weight", {3, 3'000'001});
    builder.write(model_.path());
    const Found alone = find("");
    EXPECT_EQ(alone.num_read, num_bytes());
    for (const unsigned num_threads : {2U, 64U}) {
        EXPECT_EQ(find("", num_threads).digest, alone.digest);
    }
    const TensorFiles tensors = TensorFiles::open(model_.path()).value();
    flip_bit(weights(), tensors.find("large.weight")->end - 1000);
    EXPECT_NE(find("", 2).digest, alone.digest) << "the last piece";
}

TEST_F(ModelDigestTest, IsTheSameHoweverTheFilesAreCut) {
    const std::vector<std::byte> first(3000, std::byte{1});
    const std::vector<std::byte> second(1000, std::byte{2});
    const TensorToWrite a{.name = "a", .dtype = StorageType::kU8, .shape = {3000}, .data = first};
    const TensorToWrite b{.name = "b", .dtype = StorageType::kU8, .shape = {1000}, .data = second};
    ASSERT_TRUE(write_safetensors(weights(), std::vector{a, b}).ok());
    const std::string digest = find("").digest;
    ASSERT_TRUE(write_safetensors(weights(), std::vector{b, a}).ok());
    EXPECT_EQ(find("").digest, digest);
    ASSERT_TRUE(write_safetensors(model_.path("1.safetensors"), std::vector{b}).ok());
    ASSERT_TRUE(write_safetensors(model_.path("2.safetensors"), std::vector{a}).ok());
    model_.write("model.safetensors.index.json",
                 R"({"weight_map": {"a": "2.safetensors", "b": "1.safetensors"}})");
    EXPECT_EQ(find("").digest, digest);
}

TEST_F(ModelDigestTest, IsReadOnceAndKept) {
    const Found first = find(cache());
    EXPECT_EQ(first.why_not_kept, "");
    EXPECT_EQ(first.num_read, num_bytes());
    EXPECT_EQ(first.digest, find("").digest);
    const Found second = find(cache());
    EXPECT_EQ(second.num_read, 0U);
    EXPECT_EQ(second.digest, first.digest);
    // Of the same files, and another configuration.
    EXPECT_NE(find(cache(), 1, "{\"a\": 1}").digest, first.digest);
}

// Two instances of different models may be done at once.
TEST_F(ModelDigestTest, IsKeptWhileThatOfAnotherModelIsWritten) {
    find(cache());
    const auto lock = FileLock::try_acquire(kept_file() + ".lock");
    ASSERT_TRUE(lock.ok() && lock.value());
    const std::string other = "{\"a\": 1}";
    EXPECT_EQ(find(cache(), 1, other).num_read, num_bytes());
    EXPECT_EQ(find(cache(), 1, other).num_read, 0U);
}

TEST_F(ModelDigestTest, WhatWasKeptOfOtherFilesIsNotUsed) {
    const Found first = find(cache());
    wait_for_another_time();
    const fs::file_time_type written = fs::last_write_time(weights());
    flip_bit(weights(), fs::file_size(weights()) / 2);
    const Found changed = find(cache());
    EXPECT_EQ(changed.num_read, num_bytes());
    EXPECT_NE(changed.digest, first.digest);
    // With the size, the inode and the time that the file had at first.
    wait_for_another_time();
    flip_bit(weights(), fs::file_size(weights()) / 3);
    fs::last_write_time(weights(), written);
    const Found again = find(cache());
    EXPECT_EQ(again.num_read, num_bytes());
    EXPECT_EQ(again.digest, find("").digest);
}

TEST_F(ModelDigestTest, WhatWasKeptAndIsDamagedIsComputedAgain) {
    const std::string digest = find(cache()).digest;
    fs::permissions(kept_file(), fs::perms::owner_read | fs::perms::owner_write);
    flip_bit(kept_file(), 4096);
    const Found again = find(cache());
    EXPECT_EQ(again.num_read, num_bytes());
    EXPECT_EQ(again.digest, digest);
    EXPECT_EQ(find(cache()).num_read, 0U) << "it was mended";
}

TEST_F(ModelDigestTest, WhereNothingCanBeKeptItIsComputedAgain) {
    const Found off = find("");
    EXPECT_THAT(off.why_not_kept, HasSubstr("weight_cache is off"));
    directory_.write("file", "");
    fs::create_directory(directory_.path("open"));
    fs::permissions(directory_.path("open"), fs::perms::all);
    for (const std::string name : {"file/cache", "open"}) {
        for (int i = 0; i < 2; ++i) {
            const Found found = find(directory_.path(name));
            EXPECT_EQ(found.digest, off.digest);
            EXPECT_EQ(found.num_read, num_bytes());
            EXPECT_THAT(found.why_not_kept, HasSubstr(directory_.path(name.substr(0, 4))));
        }
    }
}

TEST_F(ModelDigestTest, EndsWhenItIsStoppedAndWhenAFileIsTooShort) {
    const TensorFiles tensors = TensorFiles::open(model_.path()).value();
    ModelDigest stopped(tensors, "{}", cache());
    stopped.stop();
    EXPECT_EQ(stopped.compute(2).error().code, Code::kCancelled);
    fs::resize_file(weights(), fs::file_size(weights()) - 1);
    ModelDigest cut(tensors, "{}", cache());
    const auto outcome = cut.compute(2);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, Code::kDataLoss);
    EXPECT_THAT(outcome.error().message, HasSubstr("the file became shorter"));
}

// Of a model of text and images: what is not served is not read, and does not count.
TEST_F(ModelDigestTest, OtherPartsThanTheTextModelDoNotCount) {
    CheckpointBuilder builder(small_config());
    builder.wrap(kWrappedNames[0]);
    builder.write(model_.path());
    const auto digest_now = [&] {
        const TensorStore tensors = TensorStore::open(model_.path()).value();
        EXPECT_GT(tensors.nameless().bytes, 0U);
        ModelDigest digest(tensors, "{}", "");
        const std::string found = digest.compute(1).value();
        EXPECT_EQ(digest.bytes_read(), digest.total_bytes());
        return found;
    };
    const std::string before = digest_now();
    const SafetensorsFile file = SafetensorsFile::open(weights()).value();
    for (const TensorInfo& tensor : file.tensors()) {
        if (!tensor.name.starts_with("vision_tower.")) continue;
        flip_bit(weights(), tensor.begin);
    }
    EXPECT_EQ(digest_now(), before);
}

}  // namespace
}  // namespace afd::model
