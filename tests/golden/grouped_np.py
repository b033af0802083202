"""Decoders with grouped-query attention in NumPy: all families but those with latents.

Written from the published architectures; nothing here is derived from the C++ code. What they share
with DeepSeek (roundings, the residual stream, SwiGLU, the order of the combine) is deepseek_np.

Rounding points beside those: q, k and v -> bf16, a bias added before; the norms of q and k round
twice, as that of the stream does; clipped values -> bf16; rotation in fp32 -> bf16. P -> bf16 for
its product with the values, as with the latents there. The row of a shared expert behind a gate is
multiplied by the sigmoid in fp32 -> bf16; an int8 expert's gate sees the quantised row. The bias of
a projection, an expert, a router or the head is part of its sum. A LayerNorm rounds once, bias and
all.
"""
import dataclasses
import pathlib

import numpy as np

import deepseek_np
import layout_np
import quantised_np

Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Family:
    """What the families differ in."""
    qk_norm: str = "none"            # "head", or "row" for the whole width of q and of k.
    has_bias: bool = False           # Of q, k and v.
    has_o_bias: bool = False
    has_norm_bias: bool = False      # The norms of the stream are LayerNorms.
    ffn: str = "mlp"                 # Where a layer's router and experts stand.
    parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    num_experts: str = "num_experts"  # The key of config.json.
    is_softmax_of_chosen: bool = False
    is_sparsemixer: bool = False
    router: str = "gate"
    has_clamp: bool = False            # The activation of gpt-oss.
    has_deepseek_router: bool = False  # That of V3: sigmoid, a bias that chooses, groups.
    router_keys: dict = dataclasses.field(default_factory=dict)  # What config.json leaves out.
    bias_stands: str = "gate.e_score_correction_bias"


FAMILIES = {
    "Qwen2MoeForCausalLM": Family(has_bias=True),
    "Qwen3MoeForCausalLM": Family(qk_norm="head"),
    "MixtralForCausalLM": Family(ffn="block_sparse_moe", parts=("w1", "w3", "w2"),
                                 num_experts="num_local_experts", is_softmax_of_chosen=True),
    "OlmoeForCausalLM": Family(qk_norm="row"),
    "DeepseekForCausalLM": Family(num_experts="n_routed_experts", has_deepseek_router=True,
                                  router_keys={"scoring_func": "softmax", "topk_method": "greedy",
                                               "routed_scaling_factor": 1.0}),
    "Dots1ForCausalLM": Family(qk_norm="head", num_experts="n_routed_experts",
                               has_deepseek_router=True),
    "MiniMaxM2ForCausalLM": Family(qk_norm="row", ffn="block_sparse_moe", parts=("w1", "w3", "w2"),
                                   num_experts="num_local_experts", has_deepseek_router=True,
                                   bias_stands="e_score_correction_bias",
                                   router_keys={"n_group": 1, "topk_group": 1,
                                                "norm_topk_prob": True,
                                                "routed_scaling_factor": 1.0}),
    "GptOssForCausalLM": Family(has_bias=True, has_o_bias=True, num_experts="num_local_experts", router="router",
                                is_softmax_of_chosen=True, has_clamp=True),
    "Glm4MoeForCausalLM": Family(num_experts="n_routed_experts", has_deepseek_router=True),
    "PhiMoEForCausalLM": Family(has_norm_bias=True, ffn="block_sparse_moe",
                                parts=("w1", "w3", "w2"), num_experts="num_local_experts",
                                is_sparsemixer=True),
}


def family_of(config: dict) -> Family | None:
    """Of GLM the configuration says whether it has biases and norms, of Phi whether biases."""
    family = FAMILIES.get(config["architectures"][0])
    if family is not None and config["architectures"][0] == "PhiMoEForCausalLM":
        return dataclasses.replace(family, has_bias=config["attention_bias"],
                                   has_o_bias=config["attention_bias"])
    if family is None or config["architectures"][0] != "Glm4MoeForCausalLM":
        return family
    return dataclasses.replace(family, has_bias=config["attention_bias"],
                               qk_norm="head" if config["use_qk_norm"] else "none")


def head_dim(config: dict) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def is_moe(config: dict, layer_idx: int) -> bool:
    """Whether the layer has experts: the rules of Qwen and of GLM; elsewhere every layer."""
    return (layer_idx >= config.get("first_k_dense_replace", 0)
            and layer_idx not in config.get("mlp_only_layers", [])
            and (layer_idx + 1) % config.get("decoder_sparse_step", 1) == 0)


class Grouped(deepseek_np.DeepSeek):
    """A checkpoint of one of FAMILIES and its forward pass."""

    def __init__(self, folder: pathlib.Path, rounding: str = "none") -> None:
        super().__init__(folder, rounding)
        self.family = family_of(self.config)
        if self.family.ffn != "mlp" and any(".mlp.experts." in name for name in self.weights):
            # As newer libraries name them; afd-quantize keeps the parts' own names there.
            is_own = any(name.endswith(f".{self.family.parts[0]}.weight") for name in self.weights)
            parts = self.family.parts if is_own else Family.parts
            self.family = dataclasses.replace(self.family, ffn="mlp", parts=parts)
        if self.family.has_deepseek_router:
            self.config |= {"scoring_func": "sigmoid", "topk_method": "noaux_tc",
                            **self.family.router_keys}
            for layer in range(self.config["num_hidden_layers"]):
                moe = f"model.layers.{layer}.{self.family.ffn}"
                bias = self.weights.get(f"{moe}.{self.family.bias_stands}")
                if bias is not None:
                    self.weights[f"{moe}.gate.e_score_correction_bias"] = bias
        self.ffn, self.parts = self.family.ffn, self.family.parts

    def make_rope(self) -> deepseek_np.Rope:
        dim = self.config.get("rotary_dim") or int(
            head_dim(self.config) * self.config.get("partial_rotary_factor", 1))
        return deepseek_np.Rope({**self.config, "qk_rope_head_dim": dim, "qk_nope_head_dim": 0})

    def num_experts(self) -> int:
        return self.config[self.family.num_experts]

    def is_moe(self, layer_idx: int) -> bool:
        return is_moe(self.config, layer_idx)

    def layer_norm(self, x: Array, name: str) -> Array:
        """x [T, H], unrounded."""
        away = x - x.mean(-1, keepdims=True)
        scaled = away / np.sqrt(np.mean(away * away, -1, keepdims=True) + self.eps)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def norm(self, x: Array, name: str) -> Array:
        if not self.family.has_norm_bias:
            return super().norm(x, name)
        return self.rounding.bf16(self.layer_norm(x, name))

    def seen_by_router(self, x: Array, normal: Array, name: str) -> Array:
        if not self.family.has_norm_bias or not self.rounding.is_wide:
            return super().seen_by_router(x, normal, name)
        return self.rounding.fp32(self.layer_norm(x, name))

    def rotate(self, x: Array) -> Array:
        """x [T, N, D]: of the part that turns, Dr elements, i does with i + Dr / 2."""
        half = self.rope.dim // 2
        # In fp32, as the models' own code has it: at position 200 the two differ by 1e-5.
        frequencies = self.rounding.fp32(self.rope.frequencies)
        angles = self.rounding.fp32(np.arange(len(x))[:, None, None] * frequencies)
        cos = self.rounding.fp32(np.cos(angles) * self.rope.table_scale)
        sin = self.rounding.fp32(np.sin(angles) * self.rope.table_scale)
        first, second, rest = np.split(x, (half, 2 * half), -1)
        turned = (first * cos - second * sin, second * cos + first * sin, rest)
        return self.rounding.bf16(np.concatenate(turned, -1))

    def projected(self, x: Array, prefix: str, part: str) -> Array:
        """x [T, H] -> the rows of q, k or v [T, heads, D], before the rotation."""
        rows = self.linear(x, f"{prefix}.{part}_proj")
        dim = head_dim(self.config)
        if part != "v" and self.family.qk_norm == "row":
            rows = self.norm_of_heads(rows, f"{prefix}.{part}_norm")
        rows = rows.reshape(len(x), -1, dim)
        if part != "v" and self.family.qk_norm == "head":
            rows = self.norm_of_heads(rows, f"{prefix}.{part}_norm")
        if self.config.get("clip_qkv") is not None:
            clip = self.config["clip_qkv"]
            rows = self.rounding.bf16(np.clip(rows, -clip, clip))
        return rows

    def window(self, prefix: str) -> int | None:
        """Positions that a token of the layer sees, its own included."""
        size, types = self.config.get("sliding_window"), self.config.get("layer_types")
        is_usual = not self.config["model_type"].startswith("qwen")
        if size is None or not self.config.get("use_sliding_window", is_usual):
            return None
        layer = int(prefix.split(".")[2])
        return size if types is None or types[layer] == "sliding_attention" else None

    def attention(self, x: Array, prefix: str) -> Array:
        query = self.rotate(self.projected(x, prefix, "q"))
        key = self.rotate(self.projected(x, prefix, "k"))
        value = self.projected(x, prefix, "v")
        group = query.shape[1] // key.shape[1]
        out = np.zeros_like(query)
        window = self.window(prefix)
        for head in range(key.shape[1]):
            heads = slice(head * group, (head + 1) * group)
            scores = self.product(query[:, heads].transpose(1, 0, 2), key[:, head].T)
            sinks = self.weights.get(f"{prefix}.sinks")
            mixed = self.softmax_times(scores * query.shape[-1] ** -0.5, value[:, head], window,
                                       None if sinks is None else sinks[heads])
            out[:, heads] = mixed.transpose(1, 0, 2)
        return self.linear(out.reshape(len(x), -1), f"{prefix}.o_proj")

    def route(self, x: Array, prefix: str,
              ids: list[int] | None = None) -> tuple[Array, Array, Array]:
        """x [T, H] -> picks [T, K], weights [T, K] and the margin [T] of DeepSeek.route."""
        if self.family.has_deepseek_router:
            return super().route(x, prefix, ids)
        router = f"{prefix}.{self.family.router}"
        logits = self.rounding.fp32(x @ self.weights[f"{router}.weight"].T
                                    + self.weights.get(f"{router}.bias", 0))
        if self.family.is_sparsemixer:
            return self.sparsemixer(logits)
        raised = np.exp(logits - logits.max(-1, keepdims=True))
        scores = self.rounding.fp32(raised / raised.sum(-1, keepdims=True))
        count = self.config["num_experts_per_tok"]
        picks = deepseek_np.top_indices(scores, count)
        if self.family.is_softmax_of_chosen:
            chosen = np.take_along_axis(raised, picks, -1)
            weights = chosen / chosen.sum(-1, keepdims=True)
        else:
            weights = np.take_along_axis(scores, picks, -1)
            if self.config["norm_topk_prob"]:
                weights = weights / weights.sum(-1, keepdims=True)
        return picks, self.rounding.fp32(weights), deepseek_np.gap_after(scores, count)

    def sparsemixer(self, logits: Array) -> tuple[Array, Array, Array]:
        """Each pick is the best that is left; it is weighed among those that are near it.

        The margin is about the least change of a logit that makes another pick, or a rival near or
        far.
        """
        picks = deepseek_np.top_indices(logits, self.config["num_experts_per_tok"])
        limit = self.rounding.fp32(np.array(2 * self.config["router_jitter_noise"]))
        left, weights = logits.copy(), np.zeros(picks.shape)
        margin = np.full(len(logits), np.inf)
        for slot in range(picks.shape[1]):
            pick = picks[:, slot, None]
            top = np.take_along_axis(left, pick, -1)
            margin = np.minimum(margin, deepseek_np.gap_after(left, 1))
            with np.errstate(invalid="ignore"):
                distance = self.rounding.fp32(self.rounding.fp32(top - logits)
                                              / np.maximum(np.abs(logits), top))
            raised = np.where(distance > limit, 0, np.exp(left - top))
            weights[:, slot] = 1 / raised.sum(-1)
            edge = np.abs(distance - limit) * np.abs(top)
            is_rival = ~np.isinf(left) & (left != top)
            margin = np.minimum(margin, np.where(is_rival, edge, np.inf).min(-1))
            np.put_along_axis(left, pick, -np.inf, -1)
        return picks, self.rounding.fp32(weights), margin

    def swiglu(self, x: Array, prefix: str) -> Array:
        if not self.family.has_clamp:
            return super().swiglu(x, prefix)
        limit, (gate, up, down) = 7.0, (f"{prefix}.{part}" for part in self.parts)
        turned = np.minimum(self.linear(x, gate), limit)
        straight = np.clip(self.linear(x, up), -limit, limit) + 1
        return self.linear(
            self.rounding.bf16(straight * turned / (1 + np.exp(-1.702 * turned))), down)

    def shared(self, x: Array, prefix: str) -> Array | None:
        if f"{prefix}.shared_expert_gate.weight" not in self.weights:
            return super().shared(x, prefix)
        seen = x
        if self.rounding.is_bf16 and f"{prefix}.shared_expert.gate_proj.weight" in self.int8:
            values, scale = quantised_np.quantise_rows(x)
            seen = values * scale.astype(np.float64)[:, None]
        logits = self.rounding.fp32(seen @ self.weights[f"{prefix}.shared_expert_gate.weight"].T)
        rows = self.swiglu(x, f"{prefix}.shared_expert")
        return self.rounding.bf16(rows / (1 + np.exp(-logits)))


def decoder_class(folder: pathlib.Path) -> type[deepseek_np.DeepSeek]:
    """The class that reads the checkpoint in `folder`."""
    is_grouped = family_of(layout_np.read_config(folder)) is not None
    return Grouped if is_grouped else deepseek_np.DeepSeek


def open_decoder(folder: pathlib.Path, rounding: str = "none") -> deepseek_np.DeepSeek:
    return decoder_class(folder)(folder, rounding)
