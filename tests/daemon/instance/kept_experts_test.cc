// SPDX-License-Identifier: Apache-2.0
//
// Goal: what workers have mapped of the weight cache stays mapped without them. Method: a load as a
// worker does it, which ends; then also the files' names go. Oracle: the mappings of this process.

#include "daemon/instance/kept_experts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "model/decoder/expert_weights.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

class KeptExpertsTest : public ::testing::Test {
  protected:
    KeptExpertsTest() {
        model::CheckpointBuilder(model::small_config()).write(directory_.path());
        files_ = model::ModelFiles::open(directory_.path()).value();
        welcome_.set_weight_cache(directory_.path("cache"));
        welcome_.set_numeric_class(std::string(ops::name_of(ops::best_numeric_class())));
        welcome_.mutable_geometry()->set_num_ffn_workers(1);
        welcome_.mutable_geometry()->set_shared_experts(control::SHARED_EXPERTS_FFN);
    }

    // As a worker that ends.
    void load() {
        ops::SerialParallel serial;
        const auto slots = model::all_expert_slots(files_->config());
        const auto loaded = model::load_experts(
            *files_,
            slots,
            files_->config().num_layers * model::experts_per_layer(files_->config()),
            ops::best_numeric_class(),
            serial,
            model::WeightCache::open(welcome_.weight_cache()).value());
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        ASSERT_EQ(loaded.value().report.num_written, num_layers());
    }
    size_t num_layers() const { return files_->config().num_layers; }

    size_t num_mapped() const {
        std::ifstream maps("/proc/self/maps");
        size_t num = 0;
        for (std::string line; std::getline(maps, line);) {
            const bool is_of_cache = line.find(welcome_.weight_cache()) != std::string::npos;
            num += is_of_cache && line.find(".experts") != std::string::npos ? 1 : 0;
        }
        return num;
    }

    const test::TemporaryDirectory directory_;
    std::optional<model::ModelFiles> files_;
    control::Welcome welcome_;
    KeptExperts kept_;
};

TEST_F(KeptExpertsTest, StayMappedWithoutWorkers) {
    ASSERT_NO_FATAL_FAILURE(load());
    EXPECT_EQ(num_mapped(), 0u);
    kept_.keep(control::FFN, welcome_, *files_);
    EXPECT_EQ(kept_.num_files(), num_layers());
    EXPECT_EQ(num_mapped(), num_layers());
    std::filesystem::remove_all(welcome_.weight_cache());
    EXPECT_EQ(num_mapped(), num_layers());
}

TEST_F(KeptExpertsTest, AreThoseOfTheLastWorkerThatMapsAny) {
    ASSERT_NO_FATAL_FAILURE(load());
    kept_.keep(control::ATTENTION, welcome_, *files_);
    EXPECT_EQ(kept_.num_files(), 0u) << "it maps none";
    welcome_.mutable_geometry()->set_shared_experts(control::SHARED_EXPERTS_ATTENTION);
    kept_.keep(control::ATTENTION, welcome_, *files_);
    EXPECT_EQ(kept_.num_files(), num_layers());
    control::Welcome without_cache = welcome_;
    without_cache.set_weight_cache("");
    kept_.keep(control::FFN, without_cache, *files_);
    EXPECT_EQ(kept_.num_files(), 0u);
    EXPECT_EQ(num_mapped(), 0u);
}

}  // namespace
}  // namespace afd::daemon
