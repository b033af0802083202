// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/welcomed_model.h"

#include <utility>

#include "daemon/config/instance_geometry.h"
#include "daemon/config/wire_choices.h"
#include "proto/failure.h"

namespace afd::daemon {

Result<WelcomedModel> WelcomedModel::open(const control::Welcome& welcome) {
    const auto numeric_class = ops::parse_numeric_class(welcome.numeric_class());
    if (!numeric_class) {
        return failed_precondition(
            "numeric class {} is not known here; start afdd with --numeric-class auto",
            with(welcome.numeric_class()));
    }
    AFD_ASSIGN(const ops::KvDtype kv_dtype, from_wire(welcome.kv_dtype()));
    AFD_ASSIGN(model::ModelFiles files, model::ModelFiles::open(welcome.model_dir(), kv_dtype));
    files.set_residual(welcome.residual_fp32() ? model::ResidualType::kFp32
                                               : model::ResidualType::kBf16);
    AFD_TRY(files.set_int4_rows(int4_rows_of(welcome)));
    return WelcomedModel{.files = std::move(files), .numeric_class = *numeric_class};
}

Result<WelcomedWindows> WelcomedModel::windows(const control::Welcome& welcome) const {
    const control::Geometry& instance = welcome.geometry();
    AFD_ASSIGN(const schedule::Geometry geometry, make_geometry(files.config(), instance));
    AFD_ASSIGN(const schedule::RouterPlacement router, from_wire(instance.router()));
    AFD_ASSIGN(const schedule::RowDtype dispatch_dtype, from_wire(instance.row_dtype()));
    AFD_ASSIGN(const schedule::WindowLayout layout, schedule::WindowLayout::compute(geometry));
    return WelcomedWindows{
        .layout = layout,
        .identity =
            make_identity(welcome.instance_id(), files, numeric_class, router, dispatch_dtype)};
}

}  // namespace afd::daemon
