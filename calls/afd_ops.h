/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* afd_ops.h: the operators from C, and from every language that calls C, in two steps.
 *
 *   const char* attributes = "{\"expert_num\": 8}";
 *   afd_ops_call* call;
 *   afd_ops_error error;
 *   int code = afd_ops_query("moe_init_routing_v3", attributes, tensors, 2, NULL, &call, &error);
 *   if (code != AFD_OPS_OK) return report(error.text);
 *   ... memory for each of afd_ops_num_outputs(call) outputs and for the workspace ...
 *   code = afd_ops_run(call, outputs, workspace, workspace_bytes, &error);
 *   afd_ops_free(call);
 *
 * The query judges everything that does not take the values of every tensor, and allocates; the run
 * writes, may be repeated, and allocates nothing unless it has an error to word. (The reference,
 * which is for comparing, allocates what it likes.) A run reads the tensors anew, except for the
 * weights of the two MLA operators, which the query packs.
 * Names, dtypes, shapes and attributes of each operator: afd_ops_describe, docs/operators.md.
 *
 * Every function may be called from any thread; one call belongs to one thread at a time. None
 * throws or ends the process for what an argument holds; a pointer that must not be NULL and is, or
 * memory smaller than a shape says, is the caller's mistake and is not seen here. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change that a program built against an older header would notice. */
#define AFD_OPS_INTERFACE 2

#define AFD_OPS_RANK_MAX 4
/* What a workspace must be aligned to, in bytes. */
#define AFD_OPS_ALIGNMENT 64

/* Codes of errors: those of every part of afd (proto/status.h). */
enum {
    AFD_OPS_OK = 0,
    AFD_OPS_INVALID_ARGUMENT = 1,   /* The call is wrong; text says what is allowed. */
    AFD_OPS_NOT_FOUND = 2,          /* There is no operator of that name. */
    AFD_OPS_RESOURCE_EXHAUSTED = 4, /* More memory than memory_max or than there is; no threads. */
    AFD_OPS_FAILED_PRECONDITION = 5 /* A state that does not allow the call; none today. */
};

typedef enum {
    AFD_OPS_BF16 = 0,
    AFD_OPS_FP16 = 1,
    AFD_OPS_FP32 = 2,
    AFD_OPS_INT8 = 3,
    AFD_OPS_INT32 = 4,
    AFD_OPS_INT64 = 5,
    AFD_OPS_UINT8 = 6,
    AFD_OPS_BOOL = 7
} afd_ops_dtype;

typedef struct {
    const char* name; /* The record's. Of outputs: lives as long as the library. */
    void* data;       /* Inputs are never written; NULL only without elements. Outputs: NULL. Is
                       * aligned for its elements; segments and windows, which hold int32 flags, to
                       * 4 bytes, and a context to 8. */
    int32_t dtype;    /* An afd_ops_dtype. */
    int32_t rank;     /* 1 to AFD_OPS_RANK_MAX. */
    uint64_t shape[AFD_OPS_RANK_MAX];
    uint64_t strides[AFD_OPS_RANK_MAX]; /* In elements. All zero: contiguous. */
} afd_ops_tensor;

typedef struct {
    int32_t is_reference;      /* 1: plain loops instead of kernels; slow, and allocates. */
    uint32_t num_threads;      /* 0 and 1: the calling thread alone. At most 1024. */
    const char* numeric_class; /* NULL: the processor's best; else a name of afd_ops_class. The
                                * reference takes bf16 subnormals as a class does that is named. */
    uint64_t memory_max;       /* Bytes that outputs and workspace may need; 0: what can be had. */
    /* Outputs whose memory there is already, so that it does not count against memory_max. */
    const char* const* outputs_given;
    size_t num_outputs_given;
} afd_ops_options;

typedef struct {
    int32_t code;
    char parameter[64]; /* The attribute, tensor or field that is wrong; empty if it is none. */
    char text[1024];    /* One line: what is wrong and what is allowed, cut where it is longer. */
} afd_ops_error;

typedef struct afd_ops_call afd_ops_call;

/* "0.1.0" */
const char* afd_ops_version(void);

/* The operators' names, sorted. NULL from the end on. */
const char* afd_ops_name(size_t index);

/* An operator's record as JSON, as `afd-op describe NAME --json`; NULL if there is none of this
 * name, or no memory for it. Lives as long as the library. */
const char* afd_ops_describe(const char* name);

/* The numeric classes that this processor can run, oldest instructions first. Where they are native
 * that is the order of their speed, but avx512 is faster than avx512-bf16 on Intel's processors;
 * without AMX the last one, amx, is emulated, and slow. NULL from the end on. */
const char* afd_ops_class(size_t index);

/* Step one. `attributes`: a JSON object, or NULL for none. `options`: NULL for all zero. Tensors
 * and the memory that they point to outlive the call; what the record calls in place is among them
 * and is written by the run; it must share memory with no other tensor, except that contexts and
 * segments may lie in one another. Windows of several workers are one tensor [workers, bytes], or
 * one tensor [bytes] a worker under the same name; no two share memory. Returns a code; `*call` is
 * set with AFD_OPS_OK only. `error`: may be NULL. */
int afd_ops_query(const char* name,
                  const char* attributes,
                  const afd_ops_tensor* tensors,
                  size_t num_tensors,
                  const afd_ops_options* options,
                  afd_ops_call** call,
                  afd_ops_error* error);

size_t afd_ops_workspace_bytes(const afd_ops_call* call);

/* Multiplications and additions of the call's matrices, for rates; 0 where it only moves and sums
 * rows. */
double afd_ops_operations(const afd_ops_call* call);

/* The outputs that are on: those that are switched off are not among them. */
size_t afd_ops_num_outputs(const afd_ops_call* call);
/* Contiguous, without memory. The index is below afd_ops_num_outputs. */
afd_ops_tensor afd_ops_output(const afd_ops_call* call, size_t index);

/* Step two. `outputs`: memory of each output, in their order, aligned for its elements. What an
 * operator leaves untouched keeps its bytes. An output that is not aligned, or shares memory with
 * an input, a tensor in place or another output, is AFD_OPS_INVALID_ARGUMENT. On an error nothing
 * has been written, unless a reference found no memory. */
int afd_ops_run(afd_ops_call* call,
                void* const* outputs,
                void* workspace,
                size_t workspace_bytes,
                afd_ops_error* error);

/* What this machine can do at most with num_threads threads (0 and 1: one), measured in about a
 * fifth of a second: bytes a second of copying memory, operations a second of matrices in the
 * cache. More than 1024 threads count as 1024. Both 0: there was no memory for it, or there were
 * not that many threads. */
void afd_ops_machine_limits(uint32_t num_threads,
                            double* bytes_per_second,
                            double* operations_per_second);

/* NULL is allowed. */
void afd_ops_free(afd_ops_call* call);

#ifdef __cplusplus
}
#endif
