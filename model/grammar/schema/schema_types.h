// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which values schemas allow, as far as their types tell.

#include <cstddef>
#include <cstdint>

#include "model/grammar/schema/schema.h"
#include "model/json/look_budget.h"

namespace afd::model {

// Whether every text of the first of `schemas` is an object.
bool is_of_objects(const SchemaList& schemas);

// Schemas, members and values, long ones in blocks, looked at for all oneOf of a schema: choices of
// choices, and members of members, multiply.
inline constexpr size_t kDisjointLooksMax = 4'000'000;

// Whether no value is valid against both: their types differ, or an object of the one has a member
// that one of the other cannot have. False where that takes a closer look, and once `looks`, of
// kDisjointLooksMax, is spent.
bool are_disjoint(const SchemaList& schemas, uint32_t one, uint32_t other, LookBudget& looks);

}  // namespace afd::model
