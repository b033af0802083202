// SPDX-License-Identifier: Apache-2.0
#include "bench/attention/decode_sequences.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace afd::bench {
namespace {

size_t cache_bytes() {
    const long l3_bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return 5 * static_cast<size_t>(std::max(l3_bytes, long{32} << 20));
}

}  // namespace

DecodeSequences::DecodeSequences(size_t position_bytes,
                                 size_t context,
                                 size_t seen,
                                 unsigned num_tokens)
    : context_(context),
      seen_(seen),
      num_sequences_(cache_bytes() / (seen * position_bytes) + num_tokens),
      positions_(num_tokens, static_cast<int32_t>(context - 1)),
      blocks_(num_sequences_ * context / ops::kAttentionBlock),
      tables_(num_tokens) {
    const size_t num_own = seen / ops::kAttentionBlock;
    for (size_t sequence = 1; sequence <= num_sequences_; ++sequence) {
        int32_t* const end = blocks_.data() + sequence * (context / ops::kAttentionBlock);
        std::iota(end - num_own, end, static_cast<int32_t>((sequence - 1) * num_own));
    }
}

ops::AttentionBatch DecodeSequences::next() {
    for (const int32_t*& table : tables_) {
        table = &blocks_[sequence_ * (context_ / ops::kAttentionBlock)];
        sequence_ = (sequence_ + 1) % num_sequences_;
    }
    return {num_tokens(), positions_.data(), nullptr, tables_.data()};
}

std::string decode_row(const char* model,
                       size_t context,
                       unsigned num_threads,
                       ops::KvDtype kv_dtype) {
    std::string name = std::string("decode/") + model + "/context:" + std::to_string(context) +
                       "/threads:" + std::to_string(num_threads);
    if (kv_dtype != ops::KvDtype::kBf16) name += "/kv:" + std::string(ops::name_of(kv_dtype));
    return name;
}

}  // namespace afd::bench
