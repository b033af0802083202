"""The DeepSeek-V2 / V3 decoder in NumPy, for comparison with the C++ system.

Written from the published architecture; nothing here is derived from the C++ code. `forward` runs
a whole sequence at once with full causal attention, layer by layer.

Two roundings. "none": float64 everywhere, no rounding of activations. "bf16": the activations are
rounded to bf16 where the system's decoder numerics say so, sums are taken in float64 and rounded
once, which is what any fixed fp32 order approximates. The rounding points:

    RMSNorm: x / sqrt(mean + eps) -> bf16, times gamma -> bf16; inside the attention the norm and
        gamma are one fp32 step -> bf16, with eps 1e-6 whatever the config says.
    Linear -> bf16. Residual add -> bf16. Router scores and weights fp32. Logits fp32.
    Query absorbed through W_UK -> bf16; rotated query and key -> bf16 (rotation in fp32).
    Attention: scores (q.ckv + qr.kr) * scale in fp32; an online softmax in fp32 over blocks of 64
        absolute positions. P is the unnormalised exp(score - running maximum), rounded to bf16
        for its product with ckv; the denominator sums the unrounded values in fp32; the quotient
        is taken once at the end -> bf16. W_UV -> bf16. W_O -> bf16.
    Expert, shared and dense FFN: gate -> bf16, up -> bf16, silu(gate) * up -> bf16, down -> bf16.
    Combine: fp32 sum of weight * row in pick order, then the shared row -> bf16.

Quantised weights (quantised_np): "none" multiplies by what they stand for, "bf16" as served, with
int8 rows where the weight is int8.

Weights are bf16 values in both; a checkpoint in F32 or F16 is rounded on loading. The router's
weight and balancing bias alone keep fp32. Experts in fp8 are values times scales, unrounded.
"""
import dataclasses
import math
import pathlib

import numpy as np

import foreign_np
import layout_np
import quantised_np
import safetensors_np

POSITION_BLOCK = 64
INNER_EPS = 1e-6
Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Rounding:
    """What "rounded to bf16" and "computed in fp32" mean in this run."""
    is_bf16: bool
    is_wide: bool = False  # The residual stream is in fp32.

    def stream(self, x: Array) -> Array:
        """Of a sum in the residual stream."""
        return self.fp32(x) if self.is_wide else self.bf16(x)

    def bf16(self, x: Array) -> Array:
        return safetensors_np.round_bf16(x).astype(np.float64) if self.is_bf16 else x

    def fp32(self, x: Array) -> Array:
        return x.astype(np.float32).astype(np.float64) if self.is_bf16 else x


@dataclasses.dataclass
class Output:
    """Result of `forward`: logits [T, V] and the router's margin per MoE layer [L', T]."""
    logits: Array
    margins: Array
    picks: Array

    def log_probs(self) -> Array:
        """log softmax of the logits, [T, V]."""
        shifted = self.logits - self.logits.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def yarn_mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


class Rope:
    """Rotation table and the softmax scale, plain, with YaRN or with longrope."""

    def __init__(self, config: dict) -> None:
        self.dim = config["qk_rope_head_dim"]
        scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
        self.base = float(scaling.get("rope_theta", config.get("rope_theta", 10000.0)))
        kind = scaling.get("type", scaling.get("rope_type", "default"))
        index = np.arange(self.dim // 2)
        self.frequencies = self.base ** (-2.0 * index / self.dim)
        self.table_scale = 1.0
        self.softmax_scale = (config["qk_nope_head_dim"] + self.dim) ** -0.5
        if kind == "yarn":
            self.apply_yarn(scaling, index)
        elif kind == "longrope":
            # By the context that is served: by that of a request, earlier keys would change later.
            original = scaling["original_max_position_embeddings"]
            length = "long" if config["max_position_embeddings"] > original else "short"
            self.frequencies = self.frequencies / np.array(scaling[f"{length}_factor"])
            self.table_scale = scaling[f"{length}_mscale"]
        elif kind != "default":
            raise ValueError(f"rope type {kind!r}: only 'yarn', 'longrope' and none are known")

    def apply_yarn(self, scaling: dict, index: Array) -> None:
        """Slow pairs are interpolated, fast ones kept, with a ramp between the two."""
        factor, original = scaling["factor"], scaling["original_max_position_embeddings"]

        def pair_with(rotations: float) -> float:
            return (self.dim * math.log(original / (rotations * 2 * math.pi))
                    / (2 * math.log(self.base)))

        low, high = (pair_with(scaling.get("beta_fast", 32)), pair_with(scaling.get("beta_slow", 1)))
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        interpolated = np.clip((index - low) / max(high - low, 0.001), 0, 1)
        self.frequencies = self.frequencies * (interpolated / factor + 1 - interpolated)
        all_dim = yarn_mscale(factor, scaling.get("mscale_all_dim", 0.0))
        self.table_scale = yarn_mscale(factor, scaling.get("mscale", 1.0)) / all_dim
        self.softmax_scale *= all_dim ** 2

    def rotate(self, x: Array, rounding: Rounding) -> Array:
        """x [T, .., D] in interleaved pairs; the result holds evens | odds, as bf16 values."""
        angles = np.arange(len(x))[:, None] * self.frequencies
        shape = (len(x),) + (1,) * (x.ndim - 2) + (self.dim // 2,)
        cos = rounding.fp32(np.cos(angles) * self.table_scale).reshape(shape)
        sin = rounding.fp32(np.sin(angles) * self.table_scale).reshape(shape)
        even, odd = x[..., 0::2], x[..., 1::2]
        return rounding.bf16(np.concatenate((even * cos - odd * sin, odd * cos + even * sin), -1))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def top_indices(scores: Array, count: int) -> Array:
    """The `count` greatest of each row, descending; the lower index first among equals."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def gap_after(scores: Array, count: int) -> Array:
    """Distance between the `count`-th and the next greatest score of each row; inf if none."""
    if scores.shape[-1] <= count:
        return np.full(len(scores), np.inf)
    ordered = -np.sort(-scores, axis=-1)
    return ordered[:, count - 1] - ordered[:, count]


class DeepSeek:
    """A checkpoint and its forward pass."""

    ffn = "mlp"  # Where a layer's router and experts stand.
    parts = ("gate_proj", "up_proj", "down_proj")

    def __init__(self, folder: pathlib.Path, rounding: str = "none") -> None:
        if rounding not in ("none", "bf16", "wide"):
            raise ValueError(f"rounding {rounding!r}: must be 'none', 'bf16' or 'wide'")
        self.config = layout_np.read_config(folder)
        self.rounding = Rounding(rounding != "none", rounding == "wide")
        self.rope = self.make_rope()
        self.eps = self.config.get("rms_norm_eps", 1e-6)
        self.int8: dict[str, quantised_np.Int8Weight] = {}
        self.weights = self.load(layout_np.plain_tensors(safetensors_np.read_model(folder)))

    def make_rope(self) -> Rope:
        return Rope(self.config)

    def num_experts(self) -> int:
        return self.config["n_routed_experts"]

    def load(self, tensors: dict[str, Array]) -> dict[str, Array]:
        """All weights as float64; those in int8 also as they are, in self.int8."""
        weights = {}
        tensors = foreign_np.expanded(tensors, self.config)
        for name, value in tensors.items():
            scale = tensors.get(name + "_scale")
            if name + "_scale_inv" in tensors:
                weights[name] = quantised_np.dequantise_fp8(
                    value, tensors[name + "_scale_inv"], is_exact=".mlp." in name)
            elif value.dtype == np.int8:
                self.int8[name] = quantised_np.Int8Weight(value.astype(np.float64), scale)
                weights[name] = self.int8[name].dequantised()
            elif value.dtype == np.uint8 and scale is not None:
                name_of_format = self.config["quantization_config"]["experts"]
                group = int(name_of_format.removeprefix("int4-g").removesuffix("-fp16"))
                weights[name] = quantised_np.dequantise_int4(value, scale, group)
            elif not name.endswith(("_scale", "_scale_inv")):
                weights[name] = self.loaded(name, value)
        return weights

    @staticmethod
    def loaded(name: str, value: Array) -> Array:
        if not name.endswith((".gate.weight", ".router.weight", "e_score_correction_bias")):
            value = safetensors_np.round_bf16(value)
        return value.astype(np.float64)

    def linear(self, x: Array, name: str) -> Array:
        """x [T, K] times the weight [N, K] plus the bias, if it has one -> [T, N], rounded once."""
        if self.rounding.is_bf16 and name + ".weight" in self.int8:
            sums = self.int8[name + ".weight"].linear(x)
        else:
            sums = self.sums(x, name)
        bias = self.weights.get(name + ".bias")
        return self.rounding.bf16(sums if bias is None else sums + bias)

    def sums(self, x: Array, name: str) -> Array:
        return x @ self.weights[name + ".weight"].T

    def product(self, a: Array, b: Array) -> Array:
        """A sum of products inside the attention: one place, so that it can be perturbed."""
        return a @ b

    def norm(self, x: Array, name: str) -> Array:
        """RMSNorm of the residual stream, two roundings; one if that is wide."""
        if not self.rounding.is_wide:
            return self.norm_of_heads(x, name)
        scaled = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps)
        return self.rounding.bf16(scaled * self.weights[name + ".weight"])

    def norm_of_heads(self, x: Array, name: str) -> Array:
        """RMSNorm of bf16 rows, two roundings."""
        scaled = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps)
        return self.rounding.bf16(self.rounding.bf16(scaled) * self.weights[name + ".weight"])

    def seen_by_router(self, x: Array, normal: Array, name: str) -> Array:
        """Of the residual stream x [T, H], whose norm is `normal`."""
        if not self.rounding.is_wide:
            return normal
        scaled = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps)
        return self.rounding.fp32(scaled * self.weights[name + ".weight"])

    def inner_norm(self, x: Array, name: str) -> Array:
        """RMSNorm inside the attention, one rounding."""
        scaled = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + INNER_EPS)
        return self.rounding.bf16(scaled * self.weights[name + ".weight"])

    def query(self, x: Array, prefix: str) -> tuple[Array, Array]:
        """x [T, H] -> parts without and with rotation, [T, N, D] and [T, N, Dr]."""
        if self.config.get("q_lora_rank") is None:
            query = self.linear(x, f"{prefix}.q_proj")
        else:
            latent = self.inner_norm(self.linear(x, f"{prefix}.q_a_proj"),
                                     f"{prefix}.q_a_layernorm")
            query = self.linear(latent, f"{prefix}.q_b_proj")
        query = query.reshape(len(x), self.config["num_attention_heads"], -1)
        nope = self.config["qk_nope_head_dim"]
        return query[..., :nope], self.rope.rotate(query[..., nope:], self.rounding)

    def attention(self, x: Array, prefix: str) -> Array:
        """x [T, H] -> [T, H]; scores and values live in the latent space of the cache."""
        nope, rank = self.config["qk_nope_head_dim"], self.config["kv_lora_rank"]
        heads, value = self.config["num_attention_heads"], self.config["v_head_dim"]
        up = self.weights[f"{prefix}.kv_b_proj.weight"].reshape(heads, nope + value, rank)
        query, query_rope = self.query(x, prefix)
        query = self.rounding.bf16(self.product(query.transpose(1, 0, 2), up[:, :nope]))
        latent = self.linear(x, f"{prefix}.kv_a_proj_with_mqa")
        ckv = self.inner_norm(latent[:, :rank], f"{prefix}.kv_a_layernorm")
        key_rope = self.rope.rotate(latent[:, rank:], self.rounding)
        scores = (self.product(query, ckv.T)
                  + self.product(query_rope.transpose(1, 0, 2), key_rope.T))
        mixed = self.softmax_times(scores * self.rope.softmax_scale, ckv)
        out = self.rounding.bf16(self.product(mixed, up[:, nope:].transpose(0, 2, 1)))
        return self.linear(out.transpose(1, 0, 2).reshape(len(x), -1), f"{prefix}.o_proj")

    def softmax_times(self, scores: Array, ckv: Array, window: int | None = None,
                      sinks: Array | None = None) -> Array:
        """Causal softmax of scores [N, T, T] times ckv [T, R] -> [N, T, R].

        With a window a token sees so many positions, its own included. A sink [N] is a score more
        of each head, the first, with a row of zeros.

        Online over blocks of POSITION_BLOCK positions, since the rounding of P depends on the
        maximum that was known when its block was reached.
        """
        heads, tokens, _ = scores.shape
        scores = self.rounding.fp32(scores)
        maximum = np.full((heads, tokens, 1), -np.inf)
        total = np.zeros((heads, tokens, 1))
        if sinks is not None:
            maximum, total = np.tile(sinks[:, None, None], (1, tokens, 1)), total + 1
        out = np.zeros((heads, tokens, ckv.shape[1]))
        for begin in range(0, tokens, POSITION_BLOCK):
            end = min(begin + POSITION_BLOCK, tokens)
            rows = np.arange(begin, tokens)
            block = scores[:, begin:, begin:end]
            block = np.where(np.arange(begin, end) <= rows[:, None], block, -np.inf)
            if window is not None:
                block = np.where(np.arange(begin, end) > rows[:, None] - window, block, -np.inf)
            # A block out of all windows leaves the row as it is.
            new_maximum = np.maximum(maximum[:, begin:], block.max(-1, keepdims=True))
            new_maximum = np.where(np.isinf(new_maximum), -1e300, new_maximum)
            keep = np.exp(maximum[:, begin:] - new_maximum)
            p = self.rounding.fp32(np.exp(block - new_maximum))
            total[:, begin:] = total[:, begin:] * keep + p.sum(-1, keepdims=True)
            out[:, begin:] = out[:, begin:] * keep + self.rounding.bf16(p) @ ckv[begin:end]
            maximum[:, begin:] = new_maximum
        return self.rounding.bf16(out / total)

    def swiglu(self, x: Array, prefix: str) -> Array:
        """x [T, H] -> [T, H]."""
        gate, up, down = (f"{prefix}.{part}" for part in self.parts)
        hidden = self.rounding.bf16(silu(self.linear(x, gate)) * self.linear(x, up))
        return self.linear(hidden, down)

    def scores(self, x: Array, prefix: str) -> tuple[Array, Array]:
        """Router scores of x [T, H] and what the choice is made by, both [T, E]."""
        logits = self.rounding.fp32(x @ self.weights[f"{prefix}.gate.weight"].T)
        if self.config["scoring_func"] == "sigmoid":
            scores = 1 / (1 + np.exp(-logits))
        elif self.config["scoring_func"] == "sqrtsoftplus":
            scores = np.sqrt(np.logaddexp(0, logits))
        else:
            raised = np.exp(logits - logits.max(-1, keepdims=True))
            scores = raised / raised.sum(-1, keepdims=True)
        scores = self.rounding.fp32(scores)
        bias = self.weights.get(f"{prefix}.gate.e_score_correction_bias")
        return scores, scores if bias is None else self.rounding.fp32(scores + bias)

    def route(self, x: Array, prefix: str,
              ids: list[int] | None = None) -> tuple[Array, Array, Array]:
        """x [T, H] of the tokens `ids` [T] -> picks [T, K], weights [T, K] and margin [T].

        A layer with a table of token ids asks for the ids, and nothing exchanges its picks.
        The margin is the least change of one choice score, or of one group's score, that would
        exchange a pick or a kept group for another.
        """
        config = self.config
        scores, choice = self.scores(x, prefix)
        margin = np.full(len(x), np.inf)
        table = self.weights.get(f"{prefix}.gate.tid2eid")
        if table is not None:
            picks = table[np.asarray(ids, dtype=np.int64)].astype(np.int64)
        else:
            if config["topk_method"] != "greedy":
                choice, margin = self.limit_to_groups(choice)
            picks = top_indices(choice, config["num_experts_per_tok"])
            margin = np.minimum(margin, gap_after(choice, config["num_experts_per_tok"]))
        weights = np.take_along_axis(scores, picks, -1)
        if config["norm_topk_prob"]:
            weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
        return picks, self.rounding.fp32(weights * config["routed_scaling_factor"]), margin

    def limit_to_groups(self, choice: Array) -> tuple[Array, Array]:
        """`choice` [T, E] with the experts of the lesser groups at -inf, and the margin [T]."""
        groups, kept = self.config["n_group"], self.config["topk_group"]
        grouped = choice.reshape(len(choice), groups, -1)
        if self.config["topk_method"] == "noaux_tc":
            group_scores = -np.sort(-grouped, -1)[..., :2].sum(-1)
        else:
            group_scores = grouped.max(-1)
        group_scores = self.rounding.fp32(group_scores)
        mask = np.zeros_like(group_scores, dtype=bool)
        np.put_along_axis(mask, top_indices(group_scores, kept), True, -1)
        limited = np.where(mask[..., None], grouped, -np.inf).reshape(choice.shape)
        return limited, gap_after(group_scores, kept)

    def moe(self, x: Array, prefix: str, ids: list[int],
            seen: Array) -> tuple[Array, Array, Array]:
        """x [T, H], `seen` by the router -> [T, H], picks [T, K] and the router's margin [T]."""
        picks, weights, margin = self.route(seen, prefix, ids)
        rows = np.zeros(picks.shape + x.shape[1:])
        for expert in np.unique(picks):
            token, slot = np.nonzero(picks == expert)
            rows[token, slot] = self.swiglu(x[token], f"{prefix}.experts.{expert}")
        total = np.zeros_like(x)
        for slot in range(picks.shape[1]):
            total = self.rounding.fp32(total + weights[:, slot, None] * rows[:, slot])
        shared = self.shared(x, prefix)
        return self.rounding.bf16(total if shared is None else total + shared), picks, margin

    def shared(self, x: Array, prefix: str) -> Array | None:
        """The rows of the shared experts [T, H], if there are any."""
        if not self.config.get("n_shared_experts"):
            return None
        return self.swiglu(x, f"{prefix}.shared_experts")

    def is_moe(self, layer_idx: int) -> bool:
        return (layer_idx >= self.config["first_k_dense_replace"]
                and layer_idx % self.config.get("moe_layer_freq", 1) == 0)

    def forward(self, ids: list[int]) -> Output:
        """Logits after each of the token ids [T]."""
        x = self.weights["model.embed_tokens.weight"][np.asarray(ids, dtype=np.int64)]
        margins, picks = [], []
        for layer_idx in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer_idx}"
            normal = self.norm(x, f"{prefix}.input_layernorm")
            x = self.rounding.stream(x + self.attention(normal, f"{prefix}.self_attn"))
            norm = f"{prefix}.post_attention_layernorm"
            normal = self.norm(x, norm)
            if self.is_moe(layer_idx):
                branch, chosen, margin = self.moe(normal, f"{prefix}.{self.ffn}", ids,
                                                  self.seen_by_router(x, normal, norm))
                margins.append(margin)
                picks.append(chosen)
            else:
                branch = self.swiglu(normal, f"{prefix}.mlp")
            x = self.rounding.stream(x + branch)
        normal = self.norm(x, "model.norm")
        tied = self.config.get("tie_word_embeddings", False)
        head = self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
        logits = self.rounding.fp32(normal @ head.T + self.weights.get("lm_head.bias", 0))
        return Output(logits, np.array(margins), np.array(picks))
