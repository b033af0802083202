// SPDX-License-Identifier: Apache-2.0
#pragma once

// One operator by its name: attributes, headers and values of tensors. Method: OperatorInput; the
// call is made twice over the same bytes, once fast and once as the reference, with outputs and
// workspace of exactly the bytes that were asked for; one of too many operations is judged and not
// run. Oracle: the sanitizers; both give the same verdict; a refusal has a message that names the
// operator and fits a screen, and nothing was written by then; what only moves rows leaves the same
// bytes.

#include <cstdint>
#include <span>
#include <string_view>

namespace afd::fuzz {

// REQUIRES: there is an operator of this name.
void fuzz_operator(std::string_view name, std::span<const uint8_t> bytes);

}  // namespace afd::fuzz
