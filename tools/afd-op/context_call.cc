// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/context_call.h"

#include "ops/record/operator_check.h"

namespace afd::tools {
namespace {

Result<> judge_context(const ops::OperatorSpec& spec, const ops::ConstTensorView& context) {
    ops::OperatorCheck check(spec);
    check.tensor("schedule_context", context);
    return check.finish();
}

}  // namespace

Result<schedule::ScheduleContext*> context_in_place(OperatorCall& call,
                                                    const ops::OperatorSpec& spec) {
    const ops::TensorView context = call.in_place("schedule_context");
    AFD_TRY(judge_context(spec, context));
    return static_cast<schedule::ScheduleContext*>(context.data);
}

Result<const schedule::ScheduleContext*> context_input(const OperatorCall& call,
                                                       const ops::OperatorSpec& spec) {
    const ops::ConstTensorView context = call.input("schedule_context");
    AFD_TRY(judge_context(spec, context));
    return static_cast<const schedule::ScheduleContext*>(context.data);
}

Result<> refuse_reference(const OperatorCall& call, const ops::OperatorSpec& spec) {
    ops::OperatorCheck check(spec);
    check.require(!call.is_reference(), "there is one implementation; leave --reference out");
    return check.finish();
}

std::span<const std::byte> bytes_of(const ops::ConstTensorView& view) {
    return {static_cast<const std::byte*>(view.data), view.num_elements() * size_of(view.dtype)};
}

}  // namespace afd::tools
