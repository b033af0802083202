// SPDX-License-Identifier: Apache-2.0
//
// The header of a *.safetensors file. Input: 8 bytes, how much data follows the header; then its
// text. Oracle: what is accepted tiles the data, and each tensor is as long as its shape says.

#include "model/safetensors/safetensors.h"
#include "proto/check.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::FuzzInput input(data, size);
    const auto data_bytes = input.take<uint64_t>();
    constexpr uint64_t kBegin = 1000;
    const auto tensors =
        afd::model::parse_safetensors_header(input.text(), kBegin, data_bytes, "input");
    if (!tensors.ok()) return 0;
    uint64_t at = kBegin;
    for (const afd::model::TensorInfo& tensor : tensors.value()) {
        AFD_ASSERT(tensor.begin == at && tensor.end >= at,
                   "a tensor begins at %llu, the one before ends at %llu",
                   static_cast<unsigned long long>(tensor.begin),
                   static_cast<unsigned long long>(at));
        at = tensor.end;
    }
    AFD_ASSERT(at - kBegin == data_bytes,
               "the tensors end at %llu of %llu bytes",
               static_cast<unsigned long long>(at - kBegin),
               static_cast<unsigned long long>(data_bytes));
    return 0;
}
