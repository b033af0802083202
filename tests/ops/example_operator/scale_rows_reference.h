// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScaleRows in plain loops.

#include "tests/ops/example_operator/scale_rows.h"

namespace afd::ops::example::reference {

Result<> scale_rows(const ScaleRowsRequest& request);

}  // namespace afd::ops::example::reference
