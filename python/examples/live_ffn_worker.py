#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An FFN worker of a running afdd, beside workers in C++, for models of DeepSeek's layout in bf16.

    afdd --demo --ffn-workers 2 --dispatch window --numeric-class avx2 --spawn false
    live_ffn_worker.py INSTANCE RANK                              behind the other workers

The second product is NumPy's, in the order of the numeric classes portable, avx2 and avx512: the
bits are those of a worker in C++. In the other classes its sums are rounded in other places.
"""
import json
import pathlib
import sys

import numpy as np

import afd


def load(tensors, config, layer, expert):
    """Gate and up [1, H, 2*I] bf16, and down [I, H] fp32, of one expert."""
    mlp = f"model.layers.{layer}.mlp."
    if layer >= config["first_k_dense_replace"]:
        is_shared = expert == config["n_routed_experts"]
        mlp += "shared_experts." if is_shared else f"experts.{expert}."
    gate, up, down = (np.asarray(tensors[f"{mlp}{each}_proj.weight"]).view(np.uint16).T
                      for each in ("gate", "up", "down"))
    gate_up = np.ascontiguousarray(np.concatenate([gate, up], axis=1)[None])
    return afd.bf16(gate_up), afd.bf16(np.ascontiguousarray(down)).float32()


def run_expert(x, gate_up, down, numeric_class):
    """[rows, H] fp32. Products of bf16 values are exact in fp32, so only the sums are rounded."""
    hidden = afd.grouped_matmul_swiglu(x, gate_up, np.array([len(x)]), group_list_type=1,
                                       numeric_class=numeric_class).output.float32()
    sums = np.zeros((len(x), down.shape[1]), np.float32)
    for k in range(down.shape[0]):
        sums += hidden[:, k:k + 1] * down[k]
    return sums


def run(instance, rank):
    with afd.FfnWorker(instance, rank) as worker:
        tensors = afd.read_tensors(worker.model_dir)
        config = json.loads((pathlib.Path(worker.model_dir) / "config.json").read_text())
        num_dense, num_layers = config["first_k_dense_replace"], config["num_hidden_layers"]
        num_routed = [0] * num_dense + [config["n_routed_experts"]] * (num_layers - num_dense)
        experts = {key: load(tensors, config, layer, expert)
                   for layer, expert, key in worker.held_experts(num_routed)}
        worker.ready()
        for batch in worker.batches(config["hidden_size"]):
            rows, first = np.zeros(batch.x.shape, np.float32), 0
            for key, count in batch.groups:
                rows[first:first + count] = run_expert(batch.x[first:first + count], *experts[key],
                                                       worker.numeric_class)
                first += count
            worker.give_back(batch, afd.bf16(rows))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
