/* SPDX-License-Identifier: Apache-2.0
 *
 * One call in two steps, from C: three tokens to their two experts each.
 *
 *   cc route.c $(pkg-config --cflags --libs afd_ops)
 */
#include <stdio.h>
#include <stdlib.h>

#include "afd_ops.h"

#define TOKENS 3
#define PICKS 2
#define HIDDEN 4
#define EXPERTS 4

static size_t bytes_of(const afd_ops_tensor* tensor) {
    static const size_t sizes[] = {2, 2, 4, 1, 4, 8, 1, 1};
    size_t bytes = sizes[tensor->dtype];
    for (int axis = 0; axis < tensor->rank; ++axis) bytes *= tensor->shape[axis];
    return bytes;
}

int main(void) {
    float x[TOKENS][HIDDEN] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}};
    int32_t ids[TOKENS][PICKS] = {{3, 0}, {0, 1}, {1, 3}};
    const afd_ops_tensor tensors[] = {
        {"x", x, AFD_OPS_FP32, 2, {TOKENS, HIDDEN}, {0}},
        {"expert_idx", ids, AFD_OPS_INT32, 2, {TOKENS, PICKS}, {0}}};
    const char* attributes = "{\"expert_num\": 4, \"expert_tokens_num_type\": 1, "
                             "\"expert_tokens_num_flag\": true}";
    afd_ops_call* call;
    afd_ops_error error;

    if (afd_ops_query("moe_init_routing_v3", "{\"expert_nmu\": 4}", tensors, 2, NULL, &call,
                      &error) != AFD_OPS_INVALID_ARGUMENT) {
        return 1;
    }
    printf("refused: %s\n", error.text);

    if (afd_ops_query("moe_init_routing_v3", attributes, tensors, 2, NULL, &call, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    void* outputs[8];
    const size_t num_outputs = afd_ops_num_outputs(call);
    for (size_t i = 0; i < num_outputs; ++i) {
        const afd_ops_tensor output = afd_ops_output(call, i);
        outputs[i] = calloc(1, bytes_of(&output) + 1);
    }
    const size_t size = (afd_ops_workspace_bytes(call) / AFD_OPS_ALIGNMENT + 1) * AFD_OPS_ALIGNMENT;
    void* workspace = aligned_alloc(AFD_OPS_ALIGNMENT, size);

    if (afd_ops_run(call, outputs, workspace, size, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (size_t i = 0; i < num_outputs; ++i) {
        const afd_ops_tensor output = afd_ops_output(call, i);
        printf("%s", output.name);
        if (output.dtype == AFD_OPS_FP32) {  /* The first element of each row. */
            for (size_t row = 0; row < output.shape[0]; ++row) {
                printf(" %g", (double)((float*)outputs[i])[row * HIDDEN]);
            }
        }
        if (output.dtype == AFD_OPS_INT32) {
            for (size_t j = 0; j < output.shape[0]; ++j) printf(" %d", ((int32_t*)outputs[i])[j]);
        }
        if (output.dtype == AFD_OPS_INT64) {
            for (size_t j = 0; j < output.shape[0]; ++j) {
                printf(" %lld", (long long)((int64_t*)outputs[i])[j]);
            }
        }
        printf("\n");
        free(outputs[i]);
    }
    free(workspace);
    afd_ops_free(call);
    return 0;
}
