// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a JSON Schema to a ByteProgram each text of which is valid against it.
//
// Not every valid text is one of the program: members come in the order of `properties`, further
// ones behind them; a value that is spelled out (enum, const, a name) has one spelling; blanks are
// those of JsonRules; without `additionalProperties` an object that names properties has no others.

#include <memory>
#include <string_view>

#include "model/grammar/schema/byte_program.h"
#include "model/grammar/schema/json_rules.h"
#include "model/grammar/schema/schema_reader.h"
#include "proto/status.h"

namespace afd::model {

// Adds `schemas`, as they were read, to `program`, of which `json` has the rules: the rule of the
// texts of the first, without blanks around. Errors: those of drop_endless().
Result<ByteProgram::Rule> add_schema(SchemaList schemas, JsonRules& json, ByteProgram& program);

// `program` if it may run: what every schema in it is judged by in the end. Errors:
// kInvalidArgument if it grew too large or a $ref leads back to itself.
Result<> check_program(const ByteProgram& program);

// `schema`: JSON, see schema.h. Errors: those of read_json_schema(); kInvalidArgument if the
// program grows too large or a $ref leads back to itself.
Result<std::shared_ptr<ByteProgram>> schema_program(std::string_view schema);

// Any JSON object.
std::shared_ptr<ByteProgram> any_object_program();

}  // namespace afd::model
