// SPDX-License-Identifier: Apache-2.0
//
// fuzz_operator.h for the operator AFD_FUZZED_OPERATOR.

#include "tests/fuzz/fuzz_operator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::fuzz_operator(AFD_FUZZED_OPERATOR, {data, size});
    return 0;
}
