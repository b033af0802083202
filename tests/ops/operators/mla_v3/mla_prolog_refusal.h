// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the tests of mla_prolog_v3 state what it refuses.

#include <gtest/gtest.h>

#include <functional>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops::test {

struct PrologRefusal {
    int scenario;
    std::function<void(MlaCaseOptions&)> options;
    std::function<void(MlaCase&, MlaPrologV3Request&)> spoil;
    const char* message;  // After "mla_prolog_v3: ".
};

// Every refusal of the list: the fast path, the packing and the reference say the same, and no
// output or cache byte changes.
inline void expect_refusals(const std::vector<PrologRefusal>& refusals) {
    for (const PrologRefusal& refusal : refusals) {
        MlaCaseOptions options;
        options.weight = refusal.scenario / 100;
        options.kv = refusal.scenario / 10 % 10;
        options.query = refusal.scenario % 10;
        if (refusal.options) refusal.options(options);
        MlaCase one(options);
        // Valid as it stands: the refusal comes from what `spoil` does.
        const MlaPrologV3Weights weights =
            pack_mla_prolog_v3(one.request(), NumericClass::kPortable).value();
        MlaPrologV3Request request = one.request();
        refusal.spoil(one, request);
        const MlaCase before = one;
        const Workspace workspace(mla_prolog_v3_workspace_bytes(weights.shape, 100));
        SerialParallel serial;
        const auto message = [](const auto& result) {
            return result.ok() ? "accepted" : result.error().message;
        };
        const std::string want = std::string("mla_prolog_v3: ") + refusal.message;
        EXPECT_EQ(message(mla_prolog_v3(request, weights, workspace.bytes(), serial)), want);
        EXPECT_EQ(message(pack_mla_prolog_v3(request, NumericClass::kPortable)), want);
        EXPECT_EQ(message(reference::mla_prolog_v3(request)), want);
        expect_same_bytes(one, before);
    }
}

}  // namespace afd::ops::test
