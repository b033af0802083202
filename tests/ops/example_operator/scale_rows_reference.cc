// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/example_operator/scale_rows_reference.h"

#include "ops/reference/quantise.h"

namespace afd::ops::example::reference {

using ops::reference::element;
using ops::reference::set_element;

Result<> scale_rows(const ScaleRowsRequest& r) {
    AFD_TRY(check_scale_rows(r));
    for (size_t i = 0; i < r.x.num_elements(); ++i) {
        const bool has_factors = r.factors.num_elements() > 0;
        float factor = 1.0f;
        if (has_factors) factor = static_cast<const float*>(r.factors.data)[i / r.x.shape[1]];
        if (r.mode == 0) factor = factor * r.gain;
        float value = element(r.x.dtype, r.x.data, i);
        value = value * factor;
        if (r.mode == 1) value = value + r.gain;
        set_element(r.y.dtype, r.y.data, i, value);
    }
    return {};
}

}  // namespace afd::ops::example::reference
