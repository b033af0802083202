#!/usr/bin/env python3
"""Writes a small random checkpoint in Hugging Face layout. Needs NumPy only.

    make_checkpoint.py --variant NAME --out DIR [--seed N]
    make_checkpoint.py --list

The same variant and seed give the same bytes. Weights are scaled so that activations stay near 1
and both the logits and the routing vary from token to token. The tokenizer is byte-level BPE
without merges: ids 0 and 1 are <|begin|> and <|end|>, then the 256 bytes; further ids of the
vocabulary are merges of two letters and then of three.
"""
import argparse
import itertools
import json
import pathlib

import numpy as np

import foreign_np
import grouped_checkpoint
import grouped_np
import layout_np
import quantised_np
import safetensors_np

BASE = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 512,
    "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4,
    "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "norm_topk_prob": True, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "hidden_act": "silu", "max_position_embeddings": 1024,
    "rope_theta": 10000, "rope_scaling": None, "rms_norm_eps": 1e-6, "attention_bias": False,
    "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
    "torch_dtype": "bfloat16"}

V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
      "scoring_func": "softmax", "norm_topk_prob": False}

YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
        "mscale_all_dim": 0.707, "original_max_position_embeddings": 64}

FP8 = {"hidden_size": 192, "intermediate_size": 320, "moe_intermediate_size": 160,
       "kv_lora_rank": 144, "num_nextn_predict_layers": 1, "fp8_scales": "F32"}

GLM_LITE = {"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
            "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.8, "rope_theta": 1000000,
            "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0}

# Three heads, and no width that a block divides.
ODD = {"hidden_size": 90, "intermediate_size": 130, "moe_intermediate_size": 44,
       "num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 50,
       "qk_nope_head_dim": 20, "qk_rope_head_dim": 10, "v_head_dim": 14, "n_routed_experts": 9,
       "n_group": 3, "topk_group": 2, "num_experts_per_tok": 3}

GPTQ = {"method": "gptq", "group": 64, "symmetric": True, "scales": "F16"}

# What Kimi-K2-Thinking leaves in bf16: all but its routed experts.
ROUTED_ALONE = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]

# The same with the attention, of which kv_b_proj is expanded.
ALL_BUT_SHARED = [entry for entry in ROUTED_ALONE if "self_attn" not in entry]

# num_shards, weights_dtype, router_dtype, fp8_scales, form (foreign_np.py) and layout (layout_np.py)
# steer this program and do not reach config.json.
VARIANTS: dict[str, dict] = {
    # DeepSeek-V3 in small: everything on.
    "v3": {},
    "v3_odd": {**ODD, "q_lora_rank": 42},
    # Moonlight: no query compression, one group, a larger inner eps must not be used.
    "v3_no_qlora": {"q_lora_rank": None, "n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-5,
                    "rope_theta": 50000, "n_shared_experts": 2, "routed_scaling_factor": 2.446},
    # V2-Lite: softmax, plain top-k, unnormalised weights, YaRN.
    "v2_lite": {**V2, "q_lora_rank": None, "topk_method": "greedy", "n_group": 1,
                "topk_group": 1, "n_shared_experts": 2, "num_experts_per_tok": 6,
                "routed_scaling_factor": 1.0, "rope_scaling": YARN,
                "max_position_embeddings": 2560},
    # V2: softmax limited to groups by their best expert; tied head, F32 tensors, two shards.
    "v2_group": {**V2, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2,
                 "routed_scaling_factor": 16.0, "tie_word_embeddings": True,
                 "n_shared_experts": 2, "torch_dtype": "float32", "num_shards": 2,
                 "weights_dtype": "F32"},
    "v2_odd": {**V2, **ODD, "q_lora_rank": None, "topk_method": "group_limited_greedy",
               "n_shared_experts": 2, "routed_scaling_factor": 1.0, "rope_scaling": YARN,
               "max_position_embeddings": 2560},
    # As DeepSeek-V3 is released: fp8 in blocks of 128 x 128, of which none of these sides is a
    # multiple, and a layer for multi-token prediction. V3.1 has powers of two for scales.
    "v3_fp8": FP8,
    "v3_fp8_ue8m0": {**FP8, "fp8_scales": "F8_E8M0"},
    # F16 tensors, which have bits that a bf16 does not.
    "v3_fp16": {"torch_dtype": "float16", "weights_dtype": "F16"},
    # GLM-4.7-Flash; the odd one has three heads and widths that no block divides.
    "glm4_lite": {**GLM_LITE, "n_routed_experts": 12},
    "glm4_lite_odd": {**GLM_LITE, "hidden_size": 90, "num_attention_heads": 3,
                      "num_key_value_heads": 3, "q_lora_rank": 50, "kv_lora_rank": 72,
                      "qk_nope_head_dim": 20, "v_head_dim": 28, "intermediate_size": 130,
                      "moe_intermediate_size": 44, "n_routed_experts": 9,
                      "num_experts_per_tok": 3},
    # As other programs quantise, all linears but routers and head, or routed experts alone.
    # int4 stays int4 in the experts, int8 also in the attention; groups out of order, e2m1 and fp8
    # with scales of rows become bf16.
    "v3_gptq": {"form": GPTQ, "torch_dtype": "float16"},
    "v3_gptq_order": {"form": {**GPTQ, "symmetric": False, "order": True, "version": "gptq_v2"}},
    "v3_packed": {"form": {"method": "packed", "group": 128, "symmetric": True, "scales": "BF16"},
                  "moe_intermediate_size": 144},
    "v3_gptq_negative": {"form": {**GPTQ, "negative": True}, "torch_dtype": "float16"},
    "v3_packed_routed": {"form": {"method": "packed", "group": 32, "symmetric": True,
                                  "scales": "BF16", "actorder": "static",
                                  "ignore": ROUTED_ALONE}},
    "v3_packed_zero": {"form": {"method": "packed", "group": 32, "symmetric": False,
                                "order": True, "scales": "BF16"}},
    "v3_fp8_channel": {"form": {"method": "fp8", "scales": "BF16"}},
    "v3_mxfp4": {"form": {"method": "mxfp4"}},
    "v3_w8a8": {"form": {"method": "int8", "scales": "F32", "ignore": ALL_BUT_SHARED}},
    # Dense and MoE layers take turns; no layer is dense for being first.
    "v3_every_second": {"num_hidden_layers": 5, "first_k_dense_replace": 0, "moe_layer_freq": 2},
    # The router of DeepSeek-V4 in a V3 decoder: square root of softplus, and of the MoE layers the
    # first two look their experts up by token id.
    "v4_router": {"scoring_func": "sqrtsoftplus", "n_group": 1, "topk_group": 1,
                  "num_hash_layers": 3, "routed_scaling_factor": 1.5},
    # Small and fast, for tests of the whole system.
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32,
             "num_hidden_layers": 3, "n_routed_experts": 8, "num_experts_per_tok": 2,
             "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
             "qk_rope_head_dim": 16, "v_head_dim": 16, "n_group": 2, "topk_group": 1,
             "routed_scaling_factor": 1.5, "max_position_embeddings": 2048},
    # 405 M parameters, 810 MB: larger than any cache, for bench/serving/bench_decode.py.
    "medium": {"hidden_size": 1024, "intermediate_size": 2048, "moe_intermediate_size": 512,
               "num_hidden_layers": 8, "n_routed_experts": 32, "num_attention_heads": 16,
               "num_key_value_heads": 16, "q_lora_rank": 384, "kv_lora_rank": 256,
               "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "n_group": 1,
               "topk_group": 1, "vocab_size": 4096, "max_position_embeddings": 4096},
}

ALL_VARIANTS = [*VARIANTS, *grouped_checkpoint.VARIANTS]

Shapes = dict[str, tuple[int, ...]]


def mlp_shapes(prefix: str, hidden: int, intermediate: int) -> Shapes:
    return {f"{prefix}.gate_proj.weight": (intermediate, hidden),
            f"{prefix}.up_proj.weight": (intermediate, hidden),
            f"{prefix}.down_proj.weight": (hidden, intermediate)}


def attention_shapes(prefix: str, config: dict) -> Shapes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    rope, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
    query = heads * (config["qk_nope_head_dim"] + rope)
    if config["q_lora_rank"] is None:
        shapes: Shapes = {f"{prefix}.q_proj.weight": (query, hidden)}
    else:
        q_rank = config["q_lora_rank"]
        shapes = {f"{prefix}.q_a_proj.weight": (q_rank, hidden),
                  f"{prefix}.q_a_layernorm.weight": (q_rank,),
                  f"{prefix}.q_b_proj.weight": (query, q_rank)}
    key_value = heads * (config["qk_nope_head_dim"] + config["v_head_dim"])
    shapes[f"{prefix}.kv_a_proj_with_mqa.weight"] = (rank + rope, hidden)
    shapes[f"{prefix}.kv_a_layernorm.weight"] = (rank,)
    shapes[f"{prefix}.kv_b_proj.weight"] = (key_value, rank)
    shapes[f"{prefix}.o_proj.weight"] = (hidden, heads * config["v_head_dim"])
    return shapes


def is_moe(config: dict, layer_idx: int) -> bool:
    """The rule of the published configuration."""
    return (layer_idx >= config["first_k_dense_replace"]
            and layer_idx % config["moe_layer_freq"] == 0)


def ffn_shapes(prefix: str, config: dict, layer_idx: int) -> Shapes:
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    if not is_moe(config, layer_idx):
        return mlp_shapes(prefix, hidden, config["intermediate_size"])
    shapes: Shapes = {f"{prefix}.gate.weight": (config["n_routed_experts"], hidden)}
    if layer_idx < config.get("num_hash_layers", 0):
        shapes[f"{prefix}.gate.tid2eid"] = (config["vocab_size"], config["num_experts_per_tok"])
    elif config["topk_method"] == "noaux_tc":
        shapes[f"{prefix}.gate.e_score_correction_bias"] = (config["n_routed_experts"],)
    for expert in range(config["n_routed_experts"]):
        shapes.update(mlp_shapes(f"{prefix}.experts.{expert}", hidden, inner))
    shapes.update(mlp_shapes(f"{prefix}.shared_experts", hidden,
                             inner * config["n_shared_experts"]))
    return shapes


def norm_shapes(name: str, config: dict) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (config["hidden_size"],)}
    family = grouped_np.family_of(config)
    if family is not None and family.has_norm_bias:
        shapes[f"{name}.bias"] = (config["hidden_size"],)
    return shapes


def checkpoint_shapes(config: dict) -> Shapes:
    """Every tensor of the checkpoint in file order."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer_idx in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer_idx}"
        is_grouped = grouped_np.family_of(config) is not None
        shapes.update(norm_shapes(f"{prefix}.input_layernorm", config))
        of_attention = grouped_checkpoint.attention_shapes if is_grouped else attention_shapes
        shapes.update(of_attention(f"{prefix}.self_attn", config))
        shapes.update(norm_shapes(f"{prefix}.post_attention_layernorm", config))
        if is_grouped:
            shapes.update(grouped_checkpoint.ffn_shapes(prefix, config, layer_idx))
        else:
            shapes.update(ffn_shapes(f"{prefix}.mlp", config, layer_idx))
    shapes.update(norm_shapes("model.norm", config))
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    if config.get("lm_head_bias"):
        shapes["lm_head.bias"] = (vocab,)
    for extra in range(config.get("num_nextn_predict_layers", 0)):
        prefix = f"model.layers.{config['num_hidden_layers'] + extra}"
        shapes[f"{prefix}.enorm.weight"] = (hidden,)
        shapes[f"{prefix}.eh_proj.weight"] = (hidden, 2 * hidden)
        shapes.update(attention_shapes(f"{prefix}.self_attn", config))
    return shapes


def is_fp8(name: str) -> bool:
    """Whether a release in fp8 has this tensor in it: the linears, but for router and head."""
    return name.endswith("_proj.weight") or name.endswith("_with_mqa.weight")


def random_tensor(name: str, shape: tuple[int, ...], config: dict,
                  random: np.random.Generator) -> np.ndarray:
    """Values by role: gammas near 1, matrices that keep the variance of their input."""
    values = random.standard_normal(shape, dtype=np.float32)
    if name.endswith("norm.weight"):
        return 1 + 0.1 * values
    if name.endswith(("e_score_correction_bias", "_proj.bias", "_proj_bias", "router.bias",
                      "norm.bias")):
        return 0.1 * values
    if name == "lm_head.bias":
        return 0.5 * values
    if name.endswith(".sinks"):
        return values
    # Inputs in rows; wide enough that some values are clamped.
    if name.endswith((".gate_up_proj", "experts.down_proj")):
        gain = 3.0 if name.endswith(".gate_up_proj") else 0.1
        return values * np.float32(gain * shape[-2] ** -0.5)
    if name == "model.embed_tokens.weight":
        return values * (config["hidden_size"] ** -0.5 if config["tie_word_embeddings"] else 1)
    gain = 2.0 if name == "lm_head.weight" else 1.0
    # Routed rows are scaled by the router's factor; smaller ones keep the stream near 1.
    if ".experts." in name and name.endswith(("down_proj.weight", "w2.weight")):
        gain = 1.5 / max(1.0, config.get("routed_scaling_factor", 1.0))
        # An expert's weight halves at once where it gets a near rival, so roundings weigh more.
        if "router_jitter_noise" in config:
            gain *= 0.2
    # A sharp query makes attention differ between keys instead of averaging them.
    if name.endswith(("q_proj.weight", "q_b_proj.weight")):
        gain = 2.0
    return values * np.float32(gain * shape[-1] ** -0.5)


def write_weights(config: dict, num_shards: int, dtype: str, router_dtype: str,
                  fp8_scales: str | None, form: dict | None, layout: dict, seed: int,
                  out: pathlib.Path) -> None:
    """model.safetensors, or shards of about equal tensor counts with an index."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in checkpoint_shapes(config).items():
        if name.endswith("tid2eid"):
            order = np.argsort(random.random((shape[0], config["n_routed_experts"])), axis=-1)
            tensors[name] = ("I32", order[:, :shape[1]].astype(np.int32))
            continue
        of_tensor = ("F32" if name.endswith("e_score_correction_bias")
                     else router_dtype if name.endswith(".gate.weight") else dtype)
        values = random_tensor(name, shape, config, random)
        if form is not None and form["method"].startswith("mxfp4_fused"):
            if name.endswith((".gate_up_proj", "experts.down_proj")):
                tensors.update(foreign_np.fused_tensors_of(name, values, form))
                continue
        elif form is not None and foreign_np.is_quantised(name, form):
            tensors.update(foreign_np.tensors_of(name, values, form, random))
            continue
        if fp8_scales is not None and is_fp8(name) and "eh_proj" not in name:
            quantised, scales = quantised_np.quantise_fp8(values, fp8_scales == "F8_E8M0")
            tensors[name] = ("F8_E4M3", quantised)
            tensors[name + "_scale_inv"] = (fp8_scales, scales)
            continue
        # Rounded at once: half the memory of a large checkpoint.
        tensors[name] = (of_tensor, safetensors_np.to_bf16_bits(values)
                         if of_tensor == "BF16" else values)
    tensors = layout_np.laid_out_tensors(tensors, layout)
    if num_shards == 1:
        safetensors_np.write(out / "model.safetensors", tensors)
        return
    names, weight_map, total = list(tensors), {}, 0
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = names[shard * len(names) // num_shards:(shard + 1) * len(names) // num_shards]
        total += safetensors_np.write(out / file, {name: tensors[name] for name in part})
        weight_map.update({name: file for name in part})
    write_json(out / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": weight_map})


def byte_chars() -> list[str]:
    """The printable stand-in of each byte: itself if printable, else U+0100 and up in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def tokenizer_json(vocab_size: int) -> dict:
    """Two specials, 256 bytes, and merges of letters up to the size of the vocabulary."""
    letters = "etaoinshrdlucmwfgypbvk"
    pairs = list(itertools.product(letters, letters))
    triples = [(a + b, c) for a, b in pairs for c in letters]
    merges = (pairs + triples)[:vocab_size - 258]
    specials = ["<|begin|>", "<|end|>"]
    tokens = specials + byte_chars() + [a + b for a, b in merges]
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for i, token in enumerate(specials)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}
    regex = r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated",
             "invert": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": [f"{a} {b}" for a, b in merges]}}


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def variant_of(name: str) -> dict:
    """Its config.json and what steers this program."""
    return (dict(grouped_checkpoint.VARIANTS[name]) if name in grouped_checkpoint.VARIANTS
            else {**BASE, **VARIANTS[name]})


def make_checkpoint(variant: str, out: pathlib.Path, seed: int = 1) -> None:
    """Writes every file of the variant into the folder `out`."""
    config = variant_of(variant)
    num_shards, dtype = config.pop("num_shards", 1), config.pop("weights_dtype", "BF16")
    router_dtype = config.pop("router_dtype", dtype)
    fp8_scales, form = config.pop("fp8_scales", None), config.pop("form", None)
    layout = config.pop("layout", {})
    if form is not None and form["method"] != "mxfp4_fused_expanded":
        config["quantization_config"] = foreign_np.quantization_config(form)
    if fp8_scales is not None:
        config["quantization_config"] = {
            "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
            "weight_block_size": [128, 128],
            **({"scale_fmt": "ue8m0"} if fp8_scales == "F8_E8M0" else {})}
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", layout_np.laid_out_config(config, layout))
    write_json(out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1})
    write_json(out / "tokenizer.json", tokenizer_json(config["vocab_size"]))
    write_json(out / "tokenizer_config.json",
               {"add_bos_token": True, "add_eos_token": False, "bos_token": "<|begin|>",
                "eos_token": "<|end|>", "model_max_length": config["max_position_embeddings"],
                "tokenizer_class": "PreTrainedTokenizerFast"})
    write_weights(config, num_shards, dtype, router_dtype, fp8_scales, form, layout, seed, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=sorted(ALL_VARIANTS))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the variants and exit")
    arguments = parser.parse_args()
    if arguments.list:
        print(*ALL_VARIANTS, sep="\n")
        return
    if arguments.variant is None or arguments.out is None:
        parser.error("--variant and --out are needed")
    make_checkpoint(arguments.variant, arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
