// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/expert_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "model/checkpoint/expert_tensors.h"
#include "model/decoder/private_expert.h"

namespace afd::model {
namespace {

// Blocks of expert e in the layer's file.
constexpr size_t gate_up_block(uint32_t expert) {
    return size_t{2} * expert;
}
constexpr size_t down_block(uint32_t expert) {
    return size_t{2} * expert + 1;
}

// "int4-g32", "int4-g32-shared-bf16".
std::string formats_of(const ModelConfig& config) {
    return std::string(ops::name_of(config.quantisation.experts)) +
           (config.quantisation.has_bf16_shared ? "-shared-bf16" : "");
}

// Keeps the first of the problems that tasks meet, and tells the others to stop.
class FirstProblem {
  public:
    void set(const Error& error) {
        const std::scoped_lock lock(mutex_);
        if (!error_) error_ = error;
        // Relaxed: partner is is_set() of other tasks, where a late look costs only work.
        is_set_.store(true, std::memory_order_relaxed);
    }
    bool is_set() const {
        // Relaxed: partner is set().
        return is_set_.load(std::memory_order_relaxed);
    }
    const std::optional<Error>& error() const { return error_; }

  private:
    std::mutex mutex_;
    std::atomic<bool> is_set_{false};
    std::optional<Error> error_;
};

// Unsigned: a file may say any year, and int64 ends in 2262.
uint64_t modified_ns(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return 0;
    return static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000u +
           static_cast<uint64_t>(status.st_mtim.tv_nsec);
}

// What the disk has of the file; 0 if there is none.
uint64_t stored_bytes(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return 0;
    constexpr uint64_t kStatBlockBytes = 512;  // Of stat(), whatever the file system's are.
    return static_cast<uint64_t>(status.st_blocks) * kStatBlockBytes;
}

}  // namespace

Result<ExpertCache> ExpertCache::open(const WeightCache& cache,
                                      const ModelFiles& files,
                                      ops::NumericClass numeric_class) {
    ExpertCache experts(files, numeric_class);
    AFD_ASSIGN(experts.folder_, cache.folder(experts.folder_name()));
    return experts;
}

CacheBytes ExpertCache::bytes_in(const std::string& directory,
                                 const ModelFiles& files,
                                 ops::NumericClass numeric_class) {
    ExpertCache experts(files, numeric_class);
    experts.folder_ = directory + "/" + experts.folder_name();
    CacheBytes bytes;
    uint64_t largest_replaced = 0;
    for (uint32_t layer = 0; layer < files.config().num_layers; ++layer) {
        const std::vector<size_t> blocks = experts.block_bytes(layer);
        const auto of_layer = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
        bytes.all += of_layer;
        if (experts.map(layer).ok()) continue;
        const uint64_t replaced = std::min(of_layer, stored_bytes(experts.path(layer)));
        bytes.missing += of_layer - replaced;
        largest_replaced = std::max(largest_replaced, replaced);
    }
    // The old file stays until the new one is whole.
    bytes.missing += largest_replaced;
    return bytes;
}

// Everything that decides about the bytes is in the name or in the key: two models, classes or
// formats never meet in one file.
std::string ExpertCache::folder_name() const {
    return files_->weights_identity() + "-" + std::string(ops::name_of(numeric_class_)) + "-" +
           formats_of(files_->config());
}

ops::PackedShape ExpertCache::gate_up_shape(uint32_t layer, uint32_t expert) const {
    const ModelConfig& config = files_->config();
    return {.num_outputs = size_t{2} * expert_intermediate(config, layer, expert),
            .depth = config.hidden,
            .format = expert_format(config, layer, expert),
            .numeric_class = numeric_class_,
            .is_gate_up = true};
}

ops::PackedShape ExpertCache::down_shape(uint32_t layer, uint32_t expert) const {
    const ModelConfig& config = files_->config();
    return {.num_outputs = config.hidden,
            .depth = expert_intermediate(config, layer, expert),
            .format = expert_format(config, layer, expert),
            .numeric_class = numeric_class_,
            .is_gate_up = false};
}

std::vector<size_t> ExpertCache::block_bytes(uint32_t layer) const {
    std::vector<size_t> bytes;
    for (uint32_t expert = 0; expert < num_layer_experts(files_->config(), layer); ++expert) {
        bytes.push_back(gate_up_shape(layer, expert).size_bytes());
        bytes.push_back(down_shape(layer, expert).size_bytes());
    }
    return bytes;
}

std::string ExpertCache::path(uint32_t layer) const {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "/%04u.experts", layer);
    return folder_ + name.data();
}

std::string ExpertCache::key(uint32_t layer) const {
    return "model " + files_->weights_identity() + ", layer " + std::to_string(layer) + ", class " +
           std::string(ops::name_of(numeric_class_)) + "/r" + std::to_string(ops::kKernelRevision) +
           ", " + formats_of(files_->config()) + ", layout " +
           std::to_string(ops::kPackedLayoutRevision);
}

Result<SealedFile> ExpertCache::map(uint32_t layer) const {
    return SealedFile::open(path(layer), key(layer), block_bytes(layer));
}

Result<> ExpertCache::verify(const SealedFile& file,
                             std::span<const uint32_t> experts,
                             ops::Parallel& parallel) {
    FirstProblem problem;
    parallel.run(experts.size(), [&](size_t task, unsigned) {
        // Only what this worker holds is verified: reading the others' experts would cost every
        // worker the whole file.
        for (const size_t block : blocks(experts[task])) {
            const Result<> verified = file.verify(block);
            if (!verified.ok()) problem.set(verified.error());
        }
    });
    if (problem.error()) return *problem.error();
    return {};
}

bool ExpertCache::is_condemned(uint32_t layer) const {
    return SealedFile::is_condemned(path(layer));
}

std::array<size_t, 2> ExpertCache::blocks(uint32_t expert) {
    return {gate_up_block(expert), down_block(expert)};
}

Result<std::optional<FileLock>> ExpertCache::try_lock(uint32_t layer) const {
    return FileLock::try_acquire(path(layer) + ".lock");
}

uint64_t ExpertCache::progress(uint32_t layer) const {
    return std::max(modified_ns(path(layer)), modified_ns(path(layer) + ".tmp"));
}

Result<> ExpertCache::write(uint32_t layer,
                            ops::Parallel& parallel,
                            std::optional<Error>& problem) const {
    auto writer = SealedFileWriter::create(path(layer), key(layer), block_bytes(layer));
    if (!writer.ok()) {
        problem = writer.error();
        return {};
    }
    FirstProblem of_model;
    FirstProblem of_file;
    const uint32_t num_experts = num_layer_experts(files_->config(), layer);
    parallel.run(num_experts, [&](size_t task, unsigned) {
        // Experts are many and slow to pack: after a problem the rest would be for nothing.
        if (of_model.is_set() || of_file.is_set()) return;
        const auto expert = static_cast<uint32_t>(task);
        const auto packed = load_expert(*files_, layer, expert, numeric_class_);
        if (!packed.ok()) return of_model.set(packed.error());
        const auto write = [&](size_t block, const ops::PackedLinear& matrix) {
            const Result<> written = writer.value().write(block, matrix.bytes());
            if (!written.ok()) of_file.set(written.error());
        };
        write(gate_up_block(expert), packed.value().gate_up);
        write(down_block(expert), packed.value().down);
    });
    // A fault of the checkpoint ends the load; a fault of the cache is only told, since private
    // memory serves as well.
    if (of_model.error()) return *of_model.error();
    problem = of_file.error();
    if (problem) return {};
    const Result<> sealed = writer.value().seal();
    if (!sealed.ok()) problem = sealed.error();
    return {};
}

ops::PackedExpert ExpertCache::view(const SealedFile& file, uint32_t layer, uint32_t expert) const {
    return {
        ops::PackedLinear::view(gate_up_shape(layer, expert), file.block(gate_up_block(expert))),
        ops::PackedLinear::view(down_shape(layer, expert), file.block(down_block(expert)))};
}

}  // namespace afd::model
