// SPDX-License-Identifier: Apache-2.0
#pragma once

// WelcomedModel: the model of a Welcome, opened on this host, and the windows that follow from
// both. A worker attaches to what the host that it runs on created, which took the same steps.
// Whether the model is the one that afdd saw, and the processor fit for it, is not asked here.

#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"

namespace afd::daemon {

struct WelcomedWindows {
    schedule::WindowLayout layout;
    schedule::InstanceIdentity identity;
};

struct WelcomedModel {
    model::ModelFiles files;
    ops::NumericClass numeric_class;  // Whether or not this processor has it.

    // Errors: of the model's files; kFailedPrecondition, kDataLoss: a choice of the Welcome that is
    // not known here.
    static Result<WelcomedModel> open(const control::Welcome& welcome);

    // `welcome`: that of open(). Errors: those of make_geometry() and WindowLayout::compute().
    Result<WelcomedWindows> windows(const control::Welcome& welcome) const;
};

}  // namespace afd::daemon
