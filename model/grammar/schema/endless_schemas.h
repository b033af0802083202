// SPDX-License-Identifier: Apache-2.0
#pragma once

// Schemas that refer to themselves may have no text that ends: an object with a required member of
// its own schema. A model that once chose such a way could only go on until it may nest no deeper.

#include "model/grammar/schema/schema_reader.h"
#include "proto/status.h"

namespace afd::model {

// Takes choices that no text ends out of every anyOf. REQUIRES: list is not empty, as
// read_json_schema() makes it. Errors: kInvalidArgument: the whole has no text that ends, or a
// property, or an element has none and could only be left out.
Result<> drop_endless(SchemaList& list);

}  // namespace afd::model
