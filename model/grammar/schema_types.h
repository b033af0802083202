// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which values schemas allow, as far as their types tell.

#include <cstdint>

#include "model/grammar/schema.h"

namespace afd::model {

// Whether every text of the first of `schemas` is an object.
bool is_of_objects(const SchemaList& schemas);

// Whether no value is valid against both: their types differ, or an object of the one has a member
// that one of the other cannot have. False where that takes a closer look.
bool are_disjoint(const SchemaList& schemas, uint32_t one, uint32_t other);

}  // namespace afd::model
