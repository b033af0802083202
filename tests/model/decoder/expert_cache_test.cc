// SPDX-License-Identifier: Apache-2.0
//
// Experts through the weight cache: packed once, whoever packs; and no state of the cache changes a
// byte of what is loaded, or keeps a worker from loading.

#include "model/decoder/expert_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "model/checkpoint/expert_tensors.h"
#include "model/decoder/expert_weights.h"
#include "model/decoder/serving_memory.h"
#include "proto/sanitizers.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"
#include "tools/afd-quantize/quantise_checkpoint.h"

namespace afd::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kNumLayers = 3;

// All packed bytes of the experts, in the order of their keys.
std::vector<std::byte> bytes_of(const ops::ExpertTable& table) {
    std::vector<std::byte> all;
    for (size_t key = 0; key < table.num_keys(); ++key) {
        if (table.at(key).empty()) continue;
        for (const auto part : {table.at(key).gate_up.bytes(), table.at(key).down.bytes()}) {
            all.insert(all.end(), part.begin(), part.end());
        }
    }
    return all;
}

// A checkpoint in one of the formats, and an empty cache.
class ExpertCacheTest : public ::testing::TestWithParam<ops::WeightFormat> {
  protected:
    void SetUp() override {
        CheckpointBuilder builder(small_config());
        const bool is_fp8 = GetParam() == ops::WeightFormat::kFp8Block128;
        if (is_fp8) builder.store_as_fp8();
        builder.write(plain_.path());
        std::string path = plain_.path();
        if (GetParam() != ops::WeightFormat::kBf16 && !is_fp8) {
            path = quantised_.path() + "/model";
            auto directory = tools::ResultDirectory::open(path, "a job").value();
            const auto made = tools::quantise_checkpoint(ModelFiles::open(plain_.path()).value(),
                                                         {.experts = GetParam()},
                                                         tools::CompanionFiles(),
                                                         directory,
                                                         serial_,
                                                         [](uint64_t) {});
            ASSERT_TRUE(made.ok()) << made.error().message;
        }
        auto files = ModelFiles::open(path);
        ASSERT_TRUE(files.ok()) << files.error().message;
        files_ = std::move(files).value();
        slots_ = all_expert_slots(files_->config());
    }

    WeightCache cache() const { return WeightCache::open(directory_.path() + "/cache").value(); }

    Result<LoadedExperts> load(const std::vector<ExpertSlot>& slots,
                               const WeightCache& cache,
                               uint64_t wait_ms = 10'000) {
        return load_experts(*files_,
                            slots,
                            files_->config().num_layers * experts_per_layer(files_->config()),
                            ops::best_numeric_class(),
                            serial_,
                            cache,
                            wait_ms);
    }
    LoadedExperts loaded(const std::vector<ExpertSlot>& slots) {
        auto experts = load(slots, cache());
        EXPECT_TRUE(experts.ok()) << experts.error().message;
        return std::move(experts).value();
    }
    std::vector<std::byte> without_cache(const std::vector<ExpertSlot>& slots) {
        return bytes_of(load(slots, WeightCache()).value().table);
    }

    CacheBytes cache_bytes() const {
        return ExpertCache::bytes_in(
            directory_.path() + "/cache", *files_, ops::best_numeric_class());
    }

    // What rank `rank` of `num_ranks` holds: every num_ranks-th routed expert, all others.
    std::vector<ExpertSlot> shard(uint32_t rank, uint32_t num_ranks) const {
        std::vector<ExpertSlot> slots;
        for (const ExpertSlot& slot : slots_) {
            const bool is_routed = files_->config().is_moe_layer(slot.layer) &&
                                   slot.expert < files_->config().num_experts;
            if (!is_routed || slot.expert % num_ranks == rank) slots.push_back(slot);
        }
        return slots;
    }

    uint64_t layer_bytes(uint32_t layer) const {
        uint64_t bytes = 0;
        for (uint32_t expert = 0; expert < num_layer_experts(files_->config(), layer); ++expert) {
            bytes +=
                packed_expert_bytes(files_->config(), layer, expert, ops::best_numeric_class());
        }
        return bytes;
    }
    // The file of a layer.
    std::string file(uint32_t layer) const {
        for (const auto& entry : fs::directory_iterator(directory_.path() + "/cache")) {
            return entry.path().string() + "/000" + std::to_string(layer) + ".experts";
        }
        return {};
    }
    void damage(uint32_t layer, uint64_t offset) const {
        fs::permissions(file(layer), fs::perms::owner_read | fs::perms::owner_write);
        std::fstream stream(file(layer), std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(offset));
        const char byte = static_cast<char>(stream.get() ^ 1);
        stream.seekp(static_cast<std::streamoff>(offset));
        stream.put(byte);
    }

    ops::SerialParallel serial_;
    const test::TemporaryDirectory plain_;
    const test::TemporaryDirectory quantised_;
    const test::TemporaryDirectory directory_;
    std::optional<ModelFiles> files_;
    std::vector<ExpertSlot> slots_;
};

TEST_P(ExpertCacheTest, PacksOnceAndThenMapsTheSameBytes) {
    const std::string cache = directory_.path() + "/cache";
    EXPECT_EQ(cache_bytes().all, without_cache(slots_).size());
    EXPECT_EQ(cache_bytes().missing, without_cache(slots_).size());
    EXPECT_FALSE(fs::exists(cache)) << "who only asks makes nothing";
    const LoadedExperts first = loaded(slots_);
    EXPECT_EQ(first.report.num_written, kNumLayers);
    EXPECT_EQ(first.report.warning, "");
    EXPECT_EQ(cache_bytes().missing, 0u);
    const LoadedExperts second = loaded(slots_);
    EXPECT_EQ(second.report.num_mapped, kNumLayers);
    EXPECT_EQ(second.report.num_written + second.report.num_private, 0u);
    EXPECT_EQ(second.report.mapped_bytes, without_cache(slots_).size());
    EXPECT_EQ(bytes_of(first.table), without_cache(slots_));
    EXPECT_EQ(bytes_of(second.table), without_cache(slots_));
    EXPECT_EQ(load(slots_, WeightCache()).value().report.num_private, kNumLayers);
}

// Goal: files of another version need little room, since each is replaced by the next one of its
// layer. Method: the headers of all are damaged, as of another layout. Oracle: the largest layer;
// and where one is not there, that one besides.
TEST_P(ExpertCacheTest, FilesOfAnotherVersionMakeRoomForTheNext) {
    (void)loaded(slots_);
    uint64_t largest = 0;
    for (uint32_t layer = 0; layer < kNumLayers; ++layer) {
        damage(layer, 0);
        largest = std::max(largest, layer_bytes(layer));
    }
    EXPECT_EQ(cache_bytes().missing, largest);
    fs::remove(file(0));
    EXPECT_EQ(cache_bytes().missing, largest + layer_bytes(0));
    EXPECT_EQ(loaded(slots_).report.num_written, kNumLayers);
    EXPECT_EQ(cache_bytes().missing, 0u);
}

TEST_P(ExpertCacheTest, EverySplitOfTheExpertsSharesTheFiles) {
    for (const uint32_t num_ranks : {2, 1, 3}) {
        for (uint32_t rank = 0; rank < num_ranks; ++rank) {
            const LoadedExperts experts = loaded(shard(rank, num_ranks));
            const bool is_first = num_ranks == 2 && rank == 0;
            EXPECT_EQ(experts.report.num_written, is_first ? kNumLayers : 0);
            EXPECT_EQ(bytes_of(experts.table), without_cache(shard(rank, num_ranks)));
        }
    }
}

// Goal: how keys and values are kept is no matter of experts. Method: the same checkpoint with
// factors of channels, which are part of what its workers must agree on. Oracle: nothing is packed.
TEST_P(ExpertCacheTest, FactorsOfKeysAndValuesLeaveTheFilesAsTheyAre) {
    EXPECT_EQ(loaded(slots_).report.num_written, kNumLayers);
    const std::string plain = files_->identity();
    EXPECT_EQ(files_->weights_identity(), plain);
    const std::string path = files_->directory();
    write_kv_factors(path, files_->config());
    auto with_factors = ModelFiles::open(path, ops::KvDtype::kInt8Channel);
    ASSERT_TRUE(with_factors.ok()) << with_factors.error().message;
    files_ = std::move(with_factors).value();
    EXPECT_EQ(files_->weights_identity(), plain);
    EXPECT_NE(files_->identity(), plain);
    const LoadedExperts experts = loaded(slots_);
    EXPECT_EQ(experts.report.num_mapped, kNumLayers);
    EXPECT_EQ(experts.report.num_written, 0u);
    EXPECT_EQ(bytes_of(experts.table), without_cache(slots_));
}

// Goal: processes that start together do not pack anything twice. Method: six of them, held back by
// a pipe and let go at once. Oracle: the numbers of files that they say they wrote add up.
TEST_P(ExpertCacheTest, ProcessesThatStartTogetherPackOnce) {
    int start[2];
    ASSERT_EQ(::pipe(start), 0);
    const std::vector<std::byte> expected = without_cache(slots_);
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
        children.push_back(::fork());
        if (children.back() != 0) continue;
        ::close(start[1]);
        char byte = 0;
        if (::read(start[0], &byte, 1) != 0) ::_exit(100);
        const auto experts = load(slots_, cache());
        if (!experts.ok() || bytes_of(experts.value().table) != expected) ::_exit(101);
        const WeightCacheReport& report = experts.value().report;
        if (report.num_private != 0 || !report.warning.empty()) ::_exit(102);
        ::_exit(static_cast<int>(report.num_written));
    }
    ::close(start[0]);
    ::close(start[1]);
    int num_written = 0;
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        num_written += WEXITSTATUS(status);
    }
    EXPECT_EQ(num_written, static_cast<int>(kNumLayers));
}

// Reads everything as the thread beside the data thread does; what it says of damage, or nothing.
std::string check_all(MappedExperts& mapped) {
    Result<bool> is_there = true;
    while (is_there.ok() && is_there.value()) is_there = mapped.check_next();
    return is_there.ok() ? "" : is_there.error().message;
}

// Goal: what is mapped serves at once, and every byte of it is checked once before it is used, by
// whoever comes first. Oracle: the bytes that are left.
TEST_P(ExpertCacheTest, MappedExpertsAreCheckedBeforeTheirFirstUse) {
    (void)loaded(slots_);
    const LoadedExperts experts = loaded(slots_);
    MappedExperts& mapped = *experts.mapped;
    EXPECT_EQ(experts.table.first_use(), &mapped);
    EXPECT_EQ(mapped.num_bytes(), experts.report.mapped_bytes);
    EXPECT_EQ(mapped.bytes_left(), mapped.num_bytes());
    size_t num_beats = 0;
    mapped.while_reading([&] { ++num_beats; });
    const auto bytes_of_key = [&](size_t key) {
        return experts.table.at(key).gate_up.size_bytes() + experts.table.at(key).down.size_bytes();
    };
    const size_t first = slots_[0].key;
    const size_t last = slots_.back().key;
    const std::vector<ops::ExpertGroup> groups = {{static_cast<int64_t>(first), 2},
                                                  {static_cast<int64_t>(slots_[1].key), 0},
                                                  {static_cast<int64_t>(last), 1}};
    mapped.before(groups, serial_);
    const uint64_t left = mapped.num_bytes() - bytes_of_key(first) - bytes_of_key(last);
    EXPECT_EQ(mapped.bytes_left(), left);
    EXPECT_EQ(num_beats, 4u);
    mapped.before(groups, serial_);
    EXPECT_EQ(mapped.bytes_left(), left);
    EXPECT_EQ(num_beats, 4u);
    EXPECT_TRUE(mapped.check_next().value());
    EXPECT_EQ(mapped.bytes_left(), left - bytes_of_key(slots_[1].key));
    EXPECT_EQ(check_all(mapped), "");
    EXPECT_EQ(mapped.bytes_left(), 0u);
    EXPECT_FALSE(mapped.check_next().value());
}

// Two threads at once, from the two ends: each expert is counted once.
TEST_P(ExpertCacheTest, TwoThreadsCheckMappedExperts) {
    (void)loaded(slots_);
    const LoadedExperts experts = loaded(slots_);
    std::thread reader([&] { EXPECT_EQ(check_all(*experts.mapped), ""); });
    for (size_t i = slots_.size(); i-- > 0;) {
        const ops::ExpertGroup group{static_cast<int64_t>(slots_[i].key), 1};
        experts.mapped->before({&group, 1}, serial_);
    }
    reader.join();
    EXPECT_EQ(experts.mapped->bytes_left(), 0u);
}

TEST_P(ExpertCacheTest, ADamagedExpertIsFoundByWhoUsesItAndPackedAgainByTheNext) {
    const size_t file_bytes = [&] {
        (void)loaded(slots_);
        return fs::file_size(file(1));
    }();
    // The last block: the shared expert's down projection. The middle: some routed expert.
    for (const uint64_t offset : {uint64_t{file_bytes - 4096}, uint64_t{4096 + 1}}) {
        damage(1, offset);
        {
            const LoadedExperts experts = loaded(slots_);
            EXPECT_EQ(experts.report.num_mapped, kNumLayers);
            EXPECT_EQ(experts.report.warning, "");
            EXPECT_THAT(check_all(*experts.mapped), HasSubstr("0001.experts: block"));
        }
        const LoadedExperts experts = loaded(slots_);
        EXPECT_EQ(experts.report.num_mapped, kNumLayers - 1);
        EXPECT_EQ(experts.report.num_written, 1u);
        EXPECT_THAT(experts.report.warning,
                    AllOf(HasSubstr("0001.experts: a worker has found it damaged"),
                          HasSubstr("packing again")));
        EXPECT_EQ(check_all(*experts.mapped), "");
        EXPECT_EQ(bytes_of(experts.table), without_cache(slots_));
        EXPECT_EQ(loaded(slots_).report.num_mapped, kNumLayers);
    }
}

// Expert 0 of layer 1 is damaged, which rank 1 of 2 does not hold.
TEST_P(ExpertCacheTest, DamageIsFoundWithItsExpertOnly) {
    (void)loaded(slots_);
    damage(1, 4096);
    EXPECT_EQ(check_all(*loaded(shard(1, 2)).mapped), "");
    const std::vector<ExpertSlot> mine = shard(0, 2);
    const LoadedExperts experts = loaded(mine);
    experts.mapped->on_damage([](const Error& error) {
        ::_exit(error.message.find("0001.experts: block 0") == std::string::npos ? 1 : 3);
    });
    for (const ExpertSlot& slot : mine) {
        const ops::ExpertGroup group{static_cast<int64_t>(slot.key), 1};
        const auto use = [&] { experts.mapped->before({&group, 1}, serial_); };
        if (slot.layer == 1 && slot.expert == 0) {
            EXPECT_EXIT(use(), ::testing::ExitedWithCode(3), "");
        } else {
            use();
        }
    }
    EXPECT_EQ(loaded(mine).report.num_written, 1u);
}

// Goal: an expert that the disk does not deliver is damage as any other, and not the end of every
// worker that comes to it. Method: the file is cut short while it is mapped. Oracle: who uses the
// expert tells and condemns; the next load packs that layer.
TEST_P(ExpertCacheTest, AnExpertThatCannotBeReadIsPackedAgainByTheNext) {
    (void)loaded(slots_);
    const LoadedExperts experts = loaded(slots_);
    experts.mapped->on_damage([](const Error& error) {
        const char* said = "0001.experts: block 0 cannot be read";
        ::_exit(error.message.find(said) == std::string::npos ? 1 : 3);
    });
    fs::permissions(file(1), fs::perms::owner_read | fs::perms::owner_write);
    fs::resize_file(file(1), 4096);
    const auto slot = std::ranges::find_if(
        slots_, [](const ExpertSlot& one) { return one.layer == 1 && one.expert == 0; });
    ASSERT_NE(slot, slots_.end());
    const ops::ExpertGroup group{static_cast<int64_t>(slot->key), 1};
    EXPECT_EXIT(experts.mapped->before({&group, 1}, serial_), ::testing::ExitedWithCode(3), "");
    const LoadedExperts next = loaded(slots_);
    EXPECT_EQ(next.report.num_written, 1u);
    EXPECT_THAT(next.report.warning, HasSubstr("0001.experts: a worker has found it damaged"));
    EXPECT_EQ(check_all(*next.mapped), "");
    EXPECT_EQ(bytes_of(next.table), without_cache(slots_));
}

// One process ends of the first damage; the next one must not end of the second.
TEST_P(ExpertCacheTest, AfterDamageEverythingIsCheckedFirst) {
    (void)loaded(slots_);
    damage(0, 4096);
    damage(2, 4096);
    EXPECT_THAT(check_all(*loaded(slots_).mapped), HasSubstr("0000.experts: block 0"));
    const LoadedExperts experts = loaded(slots_);
    EXPECT_EQ(experts.report.num_mapped, 1u);
    EXPECT_EQ(experts.report.num_written, 2u);
    EXPECT_EQ(check_all(*experts.mapped), "");
    EXPECT_EQ(bytes_of(experts.table), without_cache(slots_));
}

TEST_P(ExpertCacheTest, TruncatedAndForeignFilesArePackedAgain) {
    const std::vector<std::byte> expected = without_cache(slots_);
    (void)loaded(slots_);
    const auto expect_repacked = [&](const char* why) {
        const LoadedExperts experts = loaded(slots_);
        EXPECT_EQ(experts.report.num_written, 1u) << why;
        EXPECT_THAT(experts.report.warning, HasSubstr(why));
        EXPECT_EQ(bytes_of(experts.table), expected);
    };
    fs::permissions(file(2), fs::perms::owner_read | fs::perms::owner_write);
    fs::resize_file(file(2), fs::file_size(file(2)) / 2);
    expect_repacked("its header says");
    fs::remove(file(2));
    fs::copy_file(file(1), file(2));
    expect_repacked("layer 1, class");
    fs::remove(file(2));
    std::ofstream(file(2)) << std::string(100'000, 'x');
    expect_repacked("not a weight cache file");
    fs::remove(file(2));
    fs::create_symlink(file(1), file(2));
    expect_repacked("0002.experts");
}

TEST_P(ExpertCacheTest, ASilentHolderOfALockIsNotWaitedForWithoutEnd) {
    (void)loaded(slots_);
    fs::remove(file(1));
    const auto lock = FileLock::try_acquire(file(1) + ".lock");
    ASSERT_TRUE(lock.ok() && lock.value().has_value());
    auto experts = load(slots_, cache(), 50);
    ASSERT_TRUE(experts.ok());
    EXPECT_EQ(experts.value().report.num_private, 1u);
    EXPECT_EQ(experts.value().report.num_mapped, kNumLayers - 1);
    EXPECT_THAT(experts.value().report.warning,
                HasSubstr("another process has packed layer 1 of the weight cache for 50 ms"));
    EXPECT_EQ(bytes_of(experts.value().table), without_cache(slots_));
}

// Goal: however many layers others hold, the times of their files may be added up. Method: eight
// layers with files that are of no use and locks that are another's; the times of six are beyond
// int64. Oracle: the experts; the sanitizer of undefined behaviour.
TEST_P(ExpertCacheTest, ASilentHolderOfManyLocksIsNotWaitedForWithoutEnd) {
    constexpr uint32_t kManyLayers = 8;
    nlohmann::json config = small_config();
    config["num_hidden_layers"] = kManyLayers;
    const test::TemporaryDirectory model;
    CheckpointBuilder(config).write(model.path());
    files_ = ModelFiles::open(model.path()).value();
    ASSERT_TRUE(ExpertCache::open(cache(), *files_, ops::best_numeric_class()).ok());
    std::vector<FileLock> locks;
    for (uint32_t layer = 0; layer < kManyLayers; ++layer) {
        std::ofstream(file(layer)) << "of another program";
        auto lock = FileLock::try_acquire(file(layer) + ".lock");
        ASSERT_TRUE(lock.ok() && lock.value().has_value());
        locks.push_back(*std::move(lock).value());
    }
    const std::vector<ExpertSlot> slots = all_expert_slots(files_->config());
    auto experts = load(slots, cache(), 50);
    ASSERT_TRUE(experts.ok()) << experts.error().message;
    EXPECT_EQ(experts.value().report.num_private, kManyLayers);
    EXPECT_THAT(experts.value().report.warning, HasSubstr("0000.experts: 18 bytes"));
    EXPECT_EQ(bytes_of(experts.value().table), without_cache(slots));
}

// Goal: a full disk costs one line and no more. Method: a limit on the size of files, in a process
// of its own. Oracle: the experts are whole and nothing is left in the cache.
TEST_P(ExpertCacheTest, AFullDiskMeansPrivateMemory) {
    const std::vector<std::byte> expected = without_cache(slots_);
    const auto outcome = [&] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{4096, 4096};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
        const auto experts = load(slots_, cache());
        if (!experts.ok() || bytes_of(experts.value().table) != expected) return 3;
        const WeightCacheReport& report = experts.value().report;
        if (report.num_private != kNumLayers) return 4;
        if (report.warning.find("MiB are needed") == std::string::npos) return 5;
        return fs::exists(file(0)) || fs::exists(file(0) + ".tmp") ? 6 : 0;
    };
    EXPECT_EXIT(::_exit(outcome()), ::testing::ExitedWithCode(0), "");
}

// Sanitizers map memory of their own, beyond any limit.
#if !AFD_SANITIZED

// Goal: a sound file that this process cannot map is left to those who can, and the reason is told.
// Method: a limit of the address space that leaves room for small pieces of memory and not for a
// mapping, which is aligned to 2 MiB. Oracle: the files are the same ones, and serve the next load.
TEST_P(ExpertCacheTest, AFileThatCannotBeMappedIsNotPackedAgain) {
    (void)loaded(slots_);
    // Their slab has room for others, which need no mapping then.
    const LoadedExperts kept = load(slots_, WeightCache()).value();
    const auto inode = [&](uint32_t layer) {
        struct stat status {};
        EXPECT_EQ(::stat(file(layer).c_str(), &status), 0);
        return status.st_ino;
    };
    const std::vector<ino_t> before = {inode(0), inode(1), inode(2)};
    rlimit all{};
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &all), 0);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit little{pages * static_cast<size_t>(::getpagesize()) + (3u << 19), all.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
    const auto experts = load(slots_, cache());
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &all), 0);
    ASSERT_TRUE(experts.ok()) << experts.error().message;
    EXPECT_EQ(experts.value().report.num_private, kNumLayers);
    EXPECT_THAT(experts.value().report.warning,
                AllOf(HasSubstr("0000.experts: mapping: Cannot allocate memory"),
                      Not(HasSubstr("packing again"))));
    EXPECT_EQ(bytes_of(experts.value().table), without_cache(slots_));
    EXPECT_EQ((std::vector<ino_t>{inode(0), inode(1), inode(2)}), before);
    EXPECT_EQ(loaded(slots_).report.num_mapped, kNumLayers);
}

#endif

TEST_P(ExpertCacheTest, AnUnusableFolderMeansPrivateMemory) {
    (void)loaded(slots_);
    const std::string folder = fs::path(file(0)).parent_path();
    ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
    const LoadedExperts experts = loaded(slots_);
    EXPECT_EQ(experts.report.num_private, kNumLayers);
    EXPECT_THAT(experts.report.warning, HasSubstr("writable for others"));
    EXPECT_EQ(bytes_of(experts.table), without_cache(slots_));
}

TEST_P(ExpertCacheTest, AProblemOfTheModelIsAnErrorAndLeavesNoFile) {
    CheckpointBuilder builder(small_config());
    builder.remove("model.layers.1.mlp.experts.7.up_proj.weight");
    const test::TemporaryDirectory model;
    builder.write(model.path());
    files_ = ModelFiles::open(model.path()).value();
    const auto experts = load(slots_, cache());
    ASSERT_FALSE(experts.ok());
    EXPECT_THAT(experts.error().message,
                HasSubstr("tensor model.layers.1.mlp.experts.7.up_proj.weight"));
    EXPECT_TRUE(fs::exists(file(0)));
    EXPECT_FALSE(fs::exists(file(1)));
    EXPECT_FALSE(fs::exists(file(1) + ".tmp"));
    EXPECT_THAT(load({{.layer = 0, .expert = 1, .key = 0}}, cache()).error().message,
                HasSubstr("layer 0, expert 1: the model has 3 layers and this one 1 experts"));
}

// Goal: int8 of another program is kept as ours is. Oracle: what is packed without a cache, which
// has the sizes of our int8.
TEST(ForeignExpertCache, KeepsInt8OfAnotherProgram) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory kept;
    CheckpointBuilder builder(small_config());
    builder.store_as_int8("shared_experts");
    builder.write(source.path());
    const ModelFiles files = ModelFiles::open(source.path()).value();
    const ModelConfig& config = files.config();
    const std::vector<ExpertSlot> slots = all_expert_slots(config);
    ops::SerialParallel serial;
    const auto load = [&](const WeightCache& cache) {
        return load_experts(files,
                            slots,
                            config.num_layers * experts_per_layer(config),
                            ops::best_numeric_class(),
                            serial,
                            cache)
            .value();
    };
    const std::string folder = kept.path() + "/cache";
    const LoadedExperts first = load(WeightCache::open(folder).value());
    const LoadedExperts second = load(WeightCache::open(folder).value());
    EXPECT_EQ(first.report.num_written, kNumLayers);
    EXPECT_EQ(second.report.num_mapped, kNumLayers);
    EXPECT_EQ(bytes_of(second.table), bytes_of(load(WeightCache()).table));
    for (const auto& entry : fs::directory_iterator(folder)) {
        EXPECT_THAT(entry.path().string(), HasSubstr("-int8-shared-bf16"));
    }
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         ExpertCacheTest,
                         ::testing::Values(ops::WeightFormat::kBf16,
                                           ops::WeightFormat::kInt8,
                                           ops::WeightFormat::kInt4Group32,
                                           ops::WeightFormat::kFp8Block128),
                         [](const auto& param_info) {
                             std::string name(ops::name_of(param_info.param));
                             std::erase(name, '-');
                             return name;
                         });

}  // namespace
}  // namespace afd::model
