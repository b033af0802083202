// SPDX-License-Identifier: Apache-2.0
#pragma once

// From the ResponseFormat of a request (proto/sampling.proto) to the ByteProgram of its output.

#include <memory>

#include "model/grammar/schema/byte_program.h"
#include "proto/status.h"

namespace afd {
class ResponseFormat;
}

namespace afd::model {

// `format`: a client's. Errors: kInvalidArgument beginning with "response_format": no format, a
// schema that is too large (schema.h), a keyword that is not supported, by its name and place.
Result<std::shared_ptr<const ByteProgram>> response_program(const ResponseFormat& format);

}  // namespace afd::model
