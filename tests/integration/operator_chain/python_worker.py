# SPDX-License-Identifier: Apache-2.0
"""Runs a worker of python/examples on what operator_chain_test.cc wrote to a file.

    python_worker.py session PREFIX SESSION FILE     the rows of its calls go to standard output
    python_worker.py ffn PREFIX RANK FILE            until run_flag is 0

The file of a session: int32 ranks, layers, experts a layer, top-k, hidden, number of calls; the
table [layers, experts, ranks, 2]; for each call int32 tokens and layer, then rows of bf16, int32
ids and fp32 weights. Of a rank: int32 layers, keys, hidden, intermediate; then of each key bf16
gate and up [2*intermediate, hidden] and down [hidden, intermediate].
"""
import pathlib
import sys

import attention_session
import ffn_worker
import numpy as np

import afd

what, prefix, index = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = pathlib.Path(sys.argv[4]).read_bytes()
offset = 0


def take(dtype, *shape):
    global offset
    array = np.frombuffer(data, dtype, int(np.prod(shape)), offset).reshape(shape)
    offset += array.nbytes
    return array


def calls(num_calls, top_k, hidden):
    for _ in range(num_calls):
        num_tokens, layer = (int(each) for each in take(np.int32, 2))
        x = afd.bf16(take(np.uint16, num_tokens, hidden))
        ids = take(np.int32, num_tokens, top_k)
        yield x, ids, take(np.float32, num_tokens, top_k), layer


if what == "session":
    ranks, layers, experts, top_k, hidden, num_calls = (int(each) for each in take(np.int32, 6))
    table = take(np.int32, layers, experts, ranks, 2)
    for rows in attention_session.run(prefix, index, ranks, table,
                                      calls(num_calls, top_k, hidden)):
        sys.stdout.buffer.write(rows.tobytes())
else:
    layers, keys, hidden, intermediate = (int(each) for each in take(np.int32, 4))
    weights = [(take(np.uint16, 2 * intermediate, hidden), take(np.uint16, hidden, intermediate))
               for _ in range(keys)]
    gate_up = np.ascontiguousarray(np.stack([each.T for each, _ in weights]))
    down = np.stack([each.T for _, each in weights])
    ffn_worker.run(prefix, index, afd.bf16(gate_up), afd.bf16(down).float32(), layers)
