// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertCache: the packed experts of a model in the weight cache, one sealed file per layer with
// all experts of it. So any split of the experts over workers, and any number of workers, share the
// same files; a worker touches (verifies, and so brings into memory) only its own experts, when
// it first uses them or before (model/decoder/mapped_experts.h).
//
// The file of a layer is named LAYER.experts in the folder MODEL-CLASS-FORMAT; its key also states
// the kernel revision and the layout, so that another version of the program replaces it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "model/family/model_files.h"
#include "model/weight_cache/file_lock.h"
#include "model/weight_cache/sealed_file.h"
#include "model/weight_cache/weight_cache.h"
#include "ops/experts/grouped_ffn.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::model {

// Of all layers' files, whichever experts a worker has.
struct CacheBytes {
    uint64_t all = 0;
    uint64_t missing = 0;  // What the disk needs beyond what it has, at any time of the packing.
};

class ExpertCache {
  public:
    // Creates the folder of this model. Errors: those of WeightCache::folder.
    static Result<ExpertCache> open(const WeightCache& cache,
                                    const ModelFiles& files,
                                    ops::NumericClass numeric_class);

    // Missing are files that are not in `directory`, or of another version; these make room when
    // they are replaced, one after the other. Creates nothing.
    static CacheBytes bytes_in(const std::string& directory,
                               const ModelFiles& files,
                               ops::NumericClass numeric_class);

    // Maps the layer's file. Errors: those of SealedFile::open.
    Result<SealedFile> map(uint32_t layer) const;

    // Reads and checks the given experts of a mapped file. Errors: those of SealedFile::verify.
    static Result<> verify(const SealedFile& file,
                           std::span<const uint32_t> experts,
                           ops::Parallel& parallel);

    // Whether a worker has found the layer's file damaged when it used it.
    bool is_condemned(uint32_t layer) const;

    // The blocks of an expert in its layer's file: gate and up, down.
    static std::array<size_t, 2> blocks(uint32_t expert);

    // The right to write the layer's file; nothing while another process has it.
    Result<std::optional<FileLock>> try_lock(uint32_t layer) const;

    // When the layer's file, or the unfinished one, was last written, in ns since the epoch; 0 if
    // there is none. A number that changes shows that whoever packs is alive.
    uint64_t progress(uint32_t layer) const;

    // Packs all experts of the layer into its file. REQUIRES: the caller holds the lock.
    // `problem` is set, and the rest of the work left out, if the file could not be written.
    // Errors: of reading the model; these are no matter of the cache.
    Result<> write(uint32_t layer, ops::Parallel& parallel, std::optional<Error>& problem) const;

    // The expert over the mapped bytes; valid while `file` lives. REQUIRES: file is map(layer).
    ops::PackedExpert view(const SealedFile& file, uint32_t layer, uint32_t expert) const;

  private:
    ExpertCache(const ModelFiles& files, ops::NumericClass numeric_class)
        : files_(&files), numeric_class_(numeric_class) {}

    std::string folder_name() const;
    ops::PackedShape gate_up_shape(uint32_t layer, uint32_t expert) const;
    ops::PackedShape down_shape(uint32_t layer, uint32_t expert) const;
    std::vector<size_t> block_bytes(uint32_t layer) const;
    std::string path(uint32_t layer) const;
    std::string key(uint32_t layer) const;

    const ModelFiles* files_;
    ops::NumericClass numeric_class_;
    std::string folder_;
};

}  // namespace afd::model
