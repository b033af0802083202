#!/usr/bin/env python3
"""The seeds' example calls as a graph makes them: the operator by its name, tensors by theirs.

    seed_examples_test.py AFD_OP        path of the program

Sizes and numbers are the seeds' own; values are random with a fixed seed where the seed's are
random. Oracle: the independent NumPy operators of tests/golden, and plain counting.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import mla_cases  # noqa: E402  (found in tests/golden, like the next three)
import mla_np  # noqa: E402
import routing_np  # noqa: E402
import safetensors_np as st  # noqa: E402

AFD_OP = ""


def call(name: str, attributes: dict, tensors: dict, *further: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        given, result = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
        st.write(given, tensors)
        done = subprocess.run(
            [AFD_OP, "run", name, "--in", given, "--out", result,
             "--attrs", json.dumps(attributes), *further],
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return st.read(result, widen=False)


class Examples(unittest.TestCase):
    # Example: mla_prolog_v3: the call in graph mode
    def test_mla_prolog_v3(self):
        b, s, he, hcq, hckv, n, d, dr = 8, 2, 7168, 1536, 512, 32, 128, 64
        random = np.random.default_rng(1)

        def rand(*shape: int) -> np.ndarray:
            return st.to_bf16_bits(random.random(shape, np.float32))

        words = {
            "token_x": rand(b, s, he),
            "weight_dq": mla_np.to_fractal_nz(rand(he, hcq)),
            "weight_uq_qr": mla_np.to_fractal_nz(rand(hcq, n * (d + dr))),
            "weight_uk": rand(n, d, hckv),
            "weight_dkv_kr": mla_np.to_fractal_nz(rand(he, hckv + dr)),
            "rmsnorm_gamma_cq": rand(hcq), "rmsnorm_gamma_ckv": rand(hckv),
            "rope_sin": rand(b, s, dr), "rope_cos": rand(b, s, dr),
            "kv_cache": rand(64, 128, 1, hckv), "kr_cache": rand(64, 128, 1, dr)}
        # The seed's index is a random fraction as an integer: every token goes to row 0.
        index = random.random((b, s)).astype(np.int64)
        attributes = {"rmsnorm_epsilon_cq": 1e-5, "rmsnorm_epsilon_ckv": 1e-5,
                      "cache_mode": "PA_BSND"}
        have = call("mla_prolog_v3", attributes,
                    {**{name: ("BF16", array) for name, array in words.items()},
                     "cache_index": ("I64", index)})

        given = {name: array if name.endswith("cache") else st.from_bf16_bits(array)
                 for name, array in words.items()} | {"cache_index": index}
        want = mla_np.mla_prolog_v3(given, {
            **attributes, "query_norm_flag": False, "weight_quant_mode": 0,
            "kv_cache_quant_mode": 0, "query_quant_mode": 0, "ckvkr_repo_mode": 0,
            "quant_scale_repo_mode": 0, "tile_size": 128, "qc_qr_scale": 1.0, "kc_scale": 1.0})
        self.assertEqual(have["query"].shape, (b, s, n, hckv))
        self.assertEqual(have["query_rope"].shape, (b, s, n, dr))
        for name in ("query", "query_rope", "kv_cache", "kr_cache"):
            expected = want[name]
            if expected.dtype != np.uint16:
                expected = st.to_bf16_bits(expected)
            self.assertEqual(
                mla_cases.difference(have[name], expected.reshape(have[name].shape)), "", name)
        self.assertFalse(np.array_equal(have["kv_cache"][0, 0], words["kv_cache"][0, 0]))
        np.testing.assert_array_equal(have["kv_cache"][1:], words["kv_cache"][1:])

    # Example: ffn_worker_batching: the call in graph mode, group_list [[1, 20], [10, 40], [22, 15]]
    def test_ffn_worker_batching(self):
        sessions, batch, slots, hidden, experts = 3, 10, 3, 64, 24
        ids = np.random.default_rng(2).permutation(
            np.repeat([1, 10, 22, 2147483647], [20, 40, 15, 15])).astype(np.int32)
        rows = np.arange(ids.size)
        window = np.zeros((ids.size, 256), np.uint16)
        window[:, :hidden] = st.to_bf16_bits(
            (rows[:, None] + np.linspace(0, 0.5, hidden)).astype(np.float32))
        context = routing_np.Context()
        for field, value in {
                "session_num": sessions, "micro_batch_num": 1, "micro_batch_size": batch,
                "selected_expert_num": slots, "expert_num": experts,
                "attn_to_ffn_token_size": 512, "ffn_to_attn_token_size": 512,
                "schedule_mode": 0, "run_flag": 1, "ffn_data_size": window.nbytes,
                "session_ids_size": 4 * sessions, "micro_batch_ids": 4 * sessions,
                "micro_batch_ids_size": 4 * sessions, "expert_ids": 8 * sessions,
                "expert_ids_size": ids.nbytes, "out_num": sessions}.items():
            setattr(context, field, value)
        control = np.concatenate([np.arange(sessions), np.zeros(sessions), ids]).astype(np.int32)
        tensors = {"schedule_context": context.tensor(),
                   "ffn_window": ("U8", window.reshape(-1).view(np.uint8)),
                   "ffn_control": ("U8", control.view(np.uint8))}
        have = call("ffn_worker_batching",
                    {"expert_num": experts, "max_out_shape": [sessions, batch, slots, hidden],
                     "token_dtype": 1}, tensors)

        np.testing.assert_array_equal(have["group_list"][:3], [[1, 20], [10, 40], [22, 15]])
        self.assertFalse(have["group_list"][3:].any())
        self.assertEqual(have["actual_token_num"].tolist(), [75])
        order = np.argsort(ids, kind="stable")[:75]
        np.testing.assert_array_equal(have["y"].reshape(-1, hidden)[:75], window[order, :hidden])
        np.testing.assert_array_equal(have["session_ids"][:75], order // (batch * slots))
        np.testing.assert_array_equal(have["token_ids"][:75], order // slots % batch)


if __name__ == "__main__":
    AFD_OP = sys.argv.pop(1)
    unittest.main()
