// SPDX-License-Identifier: Apache-2.0
#pragma once

// Grouped heads before the experts of DeepSeek: DeepSeek-MoE (V1: plain heads, the router of V2),
// dots.llm1 (a norm of each head of q and k, the router of V3) and MiniMax-M2 (a norm of the whole
// row, a part of each head rotated, the router of V3 over Mixtral's names of tensors).

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> grouped_deepseek_families();

}  // namespace afd::model
