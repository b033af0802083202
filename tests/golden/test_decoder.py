#!/usr/bin/env python3
"""Checks of the NumPy decoder itself: against expanded attention, hand-made routing and itself.

    python3 -m unittest test_decoder      (from this folder; NumPy only, half a minute)
"""
import pathlib
import tempfile
import unittest

import numpy as np

import deepseek_np
import grouped_np
import make_checkpoint
import quantised_np
import safetensors_np

NONE = deepseek_np.Rounding(False)


def expanded_attention(model: deepseek_np.DeepSeek, x: np.ndarray, prefix: str) -> np.ndarray:
    """Attention with keys and values per head and one softmax, as training computes it."""
    config = model.config
    heads, nope, value = (config["num_attention_heads"], config["qk_nope_head_dim"],
                          config["v_head_dim"])
    rank = config["kv_lora_rank"]
    query, query_rope = model.query(x, prefix)
    latent = model.linear(x, f"{prefix}.kv_a_proj_with_mqa")
    ckv = model.inner_norm(latent[:, :rank], f"{prefix}.kv_a_layernorm")
    key_rope = model.rope.rotate(latent[:, rank:], NONE)
    both = model.linear(ckv, f"{prefix}.kv_b_proj").reshape(len(x), heads, nope + value)
    out = []
    for head in range(heads):
        scores = query[:, head] @ both[:, head, :nope].T + query_rope[:, head] @ key_rope.T
        scores = np.where(np.tri(len(x), dtype=bool), scores * model.rope.softmax_scale, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out.append(p / p.sum(-1, keepdims=True) @ both[:, head, nope:])
    return model.linear(np.stack(out, 1).reshape(len(x), -1), f"{prefix}.o_proj")


def repeated_attention(model: grouped_np.Grouped, x: np.ndarray, prefix: str,
                       window: int | None = None) -> np.ndarray:
    """Grouped attention as training writes it: keys and values repeated, q + rotated half of q."""
    dim, group = (grouped_np.head_dim(model.config),
                  model.config["num_attention_heads"] // model.config["num_key_value_heads"])
    angles = np.arange(len(x))[:, None] * np.tile(model.rope.frequencies, 2)
    cos, sin = (turn(angles)[:, None] * model.rope.table_scale for turn in (np.cos, np.sin))

    def turned(rows: np.ndarray) -> np.ndarray:
        other = np.concatenate((-rows[..., dim // 2:], rows[..., :dim // 2]), -1)
        return rows * cos + other * sin

    query = turned(model.projected(x, prefix, "q"))
    key = np.repeat(turned(model.projected(x, prefix, "k")), group, axis=1)
    value = np.repeat(model.projected(x, prefix, "v"), group, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) / dim ** 0.5
    seen = np.tri(len(x), dtype=bool)
    if window is not None:
        seen &= ~np.tri(len(x), k=-window, dtype=bool)
    p = np.exp(np.where(seen, scores, -np.inf))
    # A sink takes its part of the whole and gives nothing.
    sinks = model.weights.get(f"{prefix}.sinks")
    total = p.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(sinks)[:, None, None])
    out = np.einsum("hqk,khd->qhd", p / total, value)
    return model.linear(out.reshape(len(x), -1), f"{prefix}.o_proj")


class DecoderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.paths = {}
        for variant in set(make_checkpoint.ALL_VARIANTS) - {"medium"}:
            cls.paths[variant] = pathlib.Path(cls.folder.name) / variant
            make_checkpoint.make_checkpoint(variant, cls.paths[variant])
        cls.outputs = {}
        cls.ids = [0, *np.random.default_rng(5).integers(2, 512, 99)]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def forward(self, variant: str, rounding: str) -> tuple:
        """The decoder of a variant, and its output for all ids, which is computed once."""
        if (variant, rounding) not in self.outputs:
            model = grouped_np.open_decoder(self.paths[variant], rounding)
            self.outputs[variant, rounding] = model, model.forward(self.ids)
        return self.outputs[variant, rounding]

    def test_absorbed_attention_equals_expanded_attention(self) -> None:
        for variant in ("v3", "v2_lite"):
            model = deepseek_np.DeepSeek(self.paths[variant])
            x = np.random.default_rng(1).standard_normal((100, model.config["hidden_size"]))
            prefix = "model.layers.1.self_attn"
            np.testing.assert_allclose(model.attention(x, prefix),
                                       expanded_attention(model, x, prefix), atol=1e-12)

    def test_grouped_attention_equals_attention_with_repeated_heads(self) -> None:
        # variant -> the window of layer 1.
        for variant, window in (("qwen3_moe", None), ("mixtral_odd", None), ("olmoe_odd", None),
                                ("qwen2_moe", None), ("mixtral_window", 70),
                                ("mixtral_window_odd", None), ("gpt_oss", None),
                                ("gpt_oss_odd", None), ("dots1_odd", None),
                                ("phimoe", None), ("phimoe_odd", 70)):
            model = grouped_np.open_decoder(self.paths[variant])
            x = np.random.default_rng(1).standard_normal((100, model.config["hidden_size"]))
            prefix = "model.layers.1.self_attn"
            np.testing.assert_allclose(model.attention(x, prefix),
                                       repeated_attention(model, x, prefix, window), atol=1e-12)
        model = grouped_np.open_decoder(self.paths["mixtral_window_odd"])
        x = np.random.default_rng(1).standard_normal((100, model.config["hidden_size"]))
        np.testing.assert_allclose(
            model.attention(x, "model.layers.2.self_attn"),
            repeated_attention(model, x, "model.layers.2.self_attn", 21), atol=1e-12)

    def test_logits_do_not_depend_on_later_tokens(self) -> None:
        for variant in self.paths:
            for rounding in ("none", "bf16"):
                model, whole = self.forward(variant, rounding)
                part = model.forward(self.ids[:40]).logits
                np.testing.assert_allclose(whole.logits[:40], part, atol=1e-9, err_msg=variant)

    def test_bf16_rounding_stays_near_the_unrounded_run(self) -> None:
        for variant in self.paths:
            exact, rounded = (self.forward(variant, each)[1] for each in ("none", "bf16"))
            difference = np.abs(exact.log_probs() - rounded.log_probs()).mean()
            self.assertGreater(difference, 1e-4, variant)
            self.assertLess(difference, 0.15, variant)

    def test_every_expert_is_reached_and_logits_vary(self) -> None:
        for variant in self.paths:
            model, output = self.forward(variant, "none")
            experts = model.num_experts()
            self.assertGreaterEqual(len(np.unique(output.picks)), experts - 1, variant)
            self.assertGreater(output.logits.std(), 0.5, variant)
            self.assertGreater(len(np.unique(output.logits.argmax(-1))), 20, variant)


class RouterTest(unittest.TestCase):
    def model(self, scores: list[float], bias: list[float] | None, **config) -> tuple:
        """A router whose scores for the one token are given, and the token."""
        model = deepseek_np.DeepSeek.__new__(deepseek_np.DeepSeek)
        model.rounding, model.config = NONE, {"norm_topk_prob": False, **config}
        logits = np.log(scores) - (np.log1p(-np.array(scores))
                                   if config["scoring_func"] == "sigmoid" else 0)
        model.weights = {"r.gate.weight": logits[:, None]}
        if bias is not None:
            model.weights["r.gate.e_score_correction_bias"] = np.array(bias)
        return model, np.ones((1, 1))

    def test_bias_chooses_and_plain_score_weighs(self) -> None:
        model, x = self.model([0.6, 0.5, 0.2, 0.1], [-0.5, 0, 0, 0.3], scoring_func="sigmoid",
                              topk_method="noaux_tc", n_group=1, topk_group=1,
                              num_experts_per_tok=2, routed_scaling_factor=2.0)
        picks, weights, margin = model.route(x, "r")
        self.assertEqual(picks.tolist(), [[1, 3]])
        np.testing.assert_allclose(weights, [[1.0, 0.2]])
        np.testing.assert_allclose(margin, 0.2)

    def test_group_is_scored_by_the_sum_of_its_two_best(self) -> None:
        model, x = self.model([0.9, 0.1, 0.6, 0.5], [0.0] * 4, scoring_func="sigmoid",
                              topk_method="noaux_tc", n_group=2, topk_group=1,
                              num_experts_per_tok=1, routed_scaling_factor=1.0)
        picks, _, margin = model.route(x, "r")
        self.assertEqual(picks.tolist(), [[2]])
        np.testing.assert_allclose(margin, 0.1)

    def test_group_limited_greedy_scores_a_group_by_its_best(self) -> None:
        model, x = self.model([0.4, 0.05, 0.3, 0.25], None, scoring_func="softmax",
                              topk_method="group_limited_greedy", n_group=2, topk_group=1,
                              num_experts_per_tok=2, routed_scaling_factor=1.0)
        picks, weights, _ = model.route(x, "r")
        self.assertEqual(picks.tolist(), [[0, 1]])
        np.testing.assert_allclose(weights, [[0.4, 0.05]])

    def test_negative_choices_inside_a_kept_group_beat_excluded_groups(self) -> None:
        model, x = self.model([0.3, 0.1, 0.2, 0.1], [0, -0.4, -0.3, -0.3],
                              scoring_func="sigmoid", topk_method="noaux_tc", n_group=2,
                              topk_group=1, num_experts_per_tok=2, routed_scaling_factor=1.0)
        self.assertEqual(model.route(x, "r")[0].tolist(), [[0, 1]])

    def test_equal_scores_go_to_the_lower_index(self) -> None:
        model, x = self.model([0.25] * 4, None, scoring_func="softmax", topk_method="greedy",
                              num_experts_per_tok=2, routed_scaling_factor=1.0)
        picks, _, margin = model.route(x, "r")
        self.assertEqual(picks.tolist(), [[0, 1]])
        self.assertEqual(margin[0], 0)


class SparsemixerTest(unittest.TestCase):
    def mixed(self, logits: list[float], jitter: float) -> tuple:
        model = grouped_np.Grouped.__new__(grouped_np.Grouped)
        model.rounding = NONE
        model.config = {"num_experts_per_tok": 2, "router_jitter_noise": jitter}
        return model.sparsemixer(np.array([logits]))

    def test_a_pick_is_weighed_among_those_that_are_near_it(self) -> None:
        picks, weights, _ = self.mixed([1.99, 2.0, 0.0, -3.0], 0.01)
        self.assertEqual(picks.tolist(), [[1, 0]])
        np.testing.assert_allclose(weights, [[1 / (1 + np.exp(-0.01)), 1]])
        picks, weights, _ = self.mixed([-5.0, -1.01, -1.0, -1.02], 0.01)
        self.assertEqual(picks.tolist(), [[2, 1]])
        np.testing.assert_allclose(
            weights, [[1 / (1 + np.exp(-0.01) + np.exp(-0.02)), 1 / (1 + np.exp(-0.01))]])

    def test_equal_ones_go_to_the_lower_index_and_share(self) -> None:
        for value in (0.5, 0.0, -0.5):
            picks, weights, margin = self.mixed([value] * 4, 0.01)
            self.assertEqual(picks.tolist(), [[0, 1]])
            np.testing.assert_allclose(weights, [[1 / 4, 1 / 3]])
            self.assertEqual(margin[0], 0)

    def test_margin_is_that_of_a_pick_or_of_who_is_near(self) -> None:
        # 1.9 is near 2 up to 2 · 0.98 = 1.96.
        np.testing.assert_allclose(self.mixed([2.0, 1.9, 0.0], 0.01)[2], 0.06, atol=0.01)
        np.testing.assert_allclose(self.mixed([2.0, 1.0, 0.9], 0.01)[2], 0.08, atol=0.01)


class RopeTest(unittest.TestCase):
    BASE = {"qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "rope_theta": 10000}

    def test_pairs_are_interleaved(self) -> None:
        x = np.zeros((2, 16))
        x[1, 2] = 1.0
        rotated = deepseek_np.Rope(self.BASE).rotate(x, NONE)[1]
        angle = 10000 ** (-2 / 16)
        np.testing.assert_allclose(rotated[[1, 9]], [np.cos(angle), np.sin(angle)])
        self.assertEqual(np.count_nonzero(rotated), 2)

    def test_yarn_scales_the_softmax_and_slows_only_slow_pairs(self) -> None:
        scaling = dict(make_checkpoint.YARN, original_max_position_embeddings=4096)
        rope = deepseek_np.Rope({**self.BASE, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                                 "rope_scaling": scaling})
        plain = 10000 ** (-2 * np.arange(32) / 64)
        self.assertAlmostEqual(rope.softmax_scale * 192 ** 0.5, 1.5896, places=4)
        self.assertEqual(rope.table_scale, 1.0)
        np.testing.assert_allclose(rope.frequencies[:10], plain[:10])
        np.testing.assert_allclose(rope.frequencies[24:], plain[24:] / 40)


    def test_longrope_goes_by_the_context(self) -> None:
        scaling = {"type": "longrope", "original_max_position_embeddings": 64,
                   "short_factor": [1] * 8, "long_factor": [1, 2, 3, 4, 5, 6, 7, 8],
                   "short_mscale": 1.1, "long_mscale": 1.2}
        plain = 10000 ** (-2 * np.arange(8) / 16)
        for context, scale, factors in ((64, 1.1, 1), (65, 1.2, np.arange(1, 9))):
            rope = deepseek_np.Rope({**self.BASE, "rope_scaling": scaling,
                                     "max_position_embeddings": context})
            np.testing.assert_allclose(rope.frequencies, plain / factors)
            self.assertEqual(rope.table_scale, scale)


class Fp8Test(unittest.TestCase):
    def test_bytes_are_values_of_e4m3(self) -> None:
        table = quantised_np.e4m3_table()
        np.testing.assert_array_equal(table[[0, 1, 7, 8, 0x38, 0x7E, 0xFE]],
                                      [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448, -448])
        self.assertEqual(np.isnan(table).nonzero()[0].tolist(), [127, 255])

    def test_the_nearest_value_is_taken_with_the_scale_of_its_block(self) -> None:
        values = np.random.default_rng(2).standard_normal((130, 257)).astype(np.float32)
        values[128:] *= 100
        for is_power in (False, True):
            packed, scale = quantised_np.quantise_fp8(values, is_power)
            self.assertEqual(scale.shape, (2, 3))
            exact = quantised_np.dequantise_fp8(packed, scale, True)
            # Half a step of three bits of mantissa, and half a one of bf16.
            self.assertLess((np.abs(exact - values) / np.abs(values))[np.abs(values) > 0.1].max(),
                            2**-4)
            np.testing.assert_allclose(quantised_np.dequantise_fp8(packed, scale, False), exact,
                                       rtol=2**-8)


class SafetensorsTest(unittest.TestCase):
    def test_bf16_rounds_half_to_even(self) -> None:
        values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -2.5, np.inf, 3.4e38], np.float32)
        expected = [1.0, 1.0, 1 + 2**-6, -2.5, np.inf, np.inf]
        np.testing.assert_array_equal(safetensors_np.round_bf16(values), expected)
        self.assertTrue(np.isnan(safetensors_np.round_bf16(np.array([np.nan], np.float32)))[0])

    def test_read_returns_what_was_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.safetensors"
            a = np.arange(6, dtype=np.float32).reshape(2, 3)
            b = np.array([1, -2], np.int64)
            safetensors_np.write(path, {"a": ("BF16", a), "b": ("I64", b), "c": ("F32", a[:0])})
            tensors = safetensors_np.read(path)
            np.testing.assert_array_equal(tensors["a"], a)
            np.testing.assert_array_equal(tensors["b"], b)
            self.assertEqual(tensors["c"].shape, (0, 3))


if __name__ == "__main__":
    unittest.main()
