// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/dispatch_layout.h"

#include <string>

#include "proto/failure.h"

namespace afd::ops {
namespace {

Result<> check_field(const char* field, uint64_t have, uint64_t wanted) {
    if (have == wanted) return {};
    return invalid_argument(
        "the layout was made for {} {}; this call has {}, so it needs one of its own",
        with(field, have, wanted));
}

}  // namespace

Result<> check_same_layout(const LayoutKey& have, const LayoutKey& wanted) {
    // By address, with the generation below: comparing the ids themselves would cost what a layout
    // saves.
    if (have.topk_ids != wanted.topk_ids) {
        return invalid_argument(
            "the layout was made for other topk_ids; this call needs one of its own");
    }
    AFD_TRY(check_field("ids_generation", have.ids_generation, wanted.ids_generation));
    AFD_TRY(check_field("placement_epoch", have.placement_epoch, wanted.placement_epoch));
    AFD_TRY(check_field("num_tokens", have.num_tokens, wanted.num_tokens));
    AFD_TRY(check_field("top_k", have.top_k, wanted.top_k));
    return check_field("num_shared", have.num_shared, wanted.num_shared);
}

}  // namespace afd::ops
