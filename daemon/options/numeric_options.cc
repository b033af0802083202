// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/choice_member.h"
#include "daemon/options/option_topics.h"
#include "ops/format/numeric_class.h"

namespace afd::daemon {
namespace {

std::vector<std::string> numeric_class_names() {
    std::vector<std::string> names = {"auto"};
    for (const ops::NumericClass c : ops::numeric_classes()) names.emplace_back(ops::name_of(c));
    return names;
}

}  // namespace

std::vector<ConfigOption> numeric_options() {
    using C = Config;
    return {
        {.name = "numeric_class",
         .member = &C::numeric_class,
         .default_text = "auto",
         .unit = "",
         .description = "Kernels; results are bit-identical within a class",
         .choices = numeric_class_names()},
        {.name = "residual",
         .member = choice<&C::residual>(),
         .default_text = "fp32",
         .unit = "",
         .description = "Residual stream; bf16: less exact, a class of its own",
         .choices = names_up_to(model::ResidualType::kFp32)},
        {.name = "int4_rows",
         .member = choice<&C::int4_rows>(),
         .default_text = "bf16",
         .unit = "",
         .description =
             "Rows that int4 experts multiply; int8: faster without AMX, a class of its own",
         .choices = names_up_to(ops::Int4Rows::kInt8)},
    };
}

}  // namespace afd::daemon
