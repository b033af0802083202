"""Weights as other programs quantise them, in NumPy: made from random values, and expanded again.

Written from the published formats; nothing here is derived from the C++ code. A "form" is what
make_checkpoint.py's variants ask for:

    method     gptq, awq, packed (compressed-tensors, pack-quantized), fp8 (float-quantized), int8
               (int-quantized, with activations in int8), mxfp4 (mxfp4-pack-quantized), mxfp4_fused
               (the experts of gpt-oss), mxfp4_fused_expanded (the same values in BF16)
    group      inputs that share a scale; -1: all
    symmetric  zero points are all 8, and none are stored where the format can do without
    negative   every second scale is negative, as AutoRound writes them
    order      groups are not contiguous (GPTQ's desc_act, "actorder": "group")
    actorder   what a packed file says instead, if its groups are contiguous all the same
    ignore     modules that stay as they are, as compressed-tensors names them
    version    of GPTQ: one is taken from each zero point of a word at once (gptq), or none (gptq_v2)
    scales     dtype of the scales: F16, BF16 or F32; of fp8 "tensor" instead of a scale a row
"""
import re

import numpy as np

import quantised_np
import safetensors_np

Array = np.ndarray
Tensors = dict[str, tuple[str, Array]]

AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def is_quantised(name: str, form: dict) -> bool:
    """Linears, but for routers, gates of shared experts, the head and those to be ignored."""
    if not re.search(r"(_proj|_with_mqa|\.w[123])\.weight$", name) or "eh_proj" in name:
        return False
    module = name.removesuffix(".weight")
    return not any(re.match(entry.removeprefix("re:"), module) if entry.startswith("re:")
                   else entry == module for entry in form.get("ignore", []))


def words(numbers: Array) -> Array:
    """[.., n] of 0 to 15 -> [.., ceil(n / 8)] int32, the first in the lowest bits."""
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % 8)])
    parts = padded.reshape(*padded.shape[:-1], -1, 8).astype(np.uint32)
    return (parts << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32).view(np.int32)


def numbers(packed: Array, count: int) -> Array:
    """The inverse of words()."""
    parts = packed.view(np.uint32)[..., None] >> (4 * np.arange(8, dtype=np.uint32)) & 15
    return parts.reshape(*packed.shape[:-1], -1)[..., :count].astype(np.int64)


def as_stored(scale: Array, dtype: str) -> Array:
    if dtype == "F16":
        return scale.astype(np.float16)
    return safetensors_np.round_bf16(scale) if dtype == "BF16" else scale.astype(np.float32)


def group_index(depth: int, form: dict, random: np.random.Generator) -> Array:
    group = depth if form["group"] == -1 else form["group"]
    index = np.arange(depth) // group
    return random.permutation(index) if form.get("order") else index


def quantise_int4(values: Array, index: Array, form: dict) -> tuple[Array, Array, Array]:
    """values [N, K] -> q [N, K] and zero [N, G], 0 to 15, and scales [N, G] as they are stored."""
    count = index.max() + 1
    low = np.stack([values[:, index == g].min(-1) for g in range(count)], -1)
    high = np.stack([values[:, index == g].max(-1) for g in range(count)], -1)
    if form["symmetric"]:
        scale = as_stored(np.maximum(-low, high) / 7.5, form["scales"]).astype(np.float32)
        if form.get("negative"):
            scale[np.add(*np.indices(scale.shape)) % 2 == 1] *= -1
        zero = np.full(scale.shape, 8)
    else:
        scale = as_stored((high - low) / 15, form["scales"]).astype(np.float32)
        zero = np.clip(np.rint(-low / scale), 0, 15).astype(np.int64)
    q = np.clip(np.rint(values / scale[:, index]) + zero[:, index], 0, 15).astype(np.int64)
    return q, zero, scale


def expand_int4(q: Array, zero: Array, scale: Array, index: Array) -> Array:
    products = (q - zero[:, index]).astype(np.float32) * scale.astype(np.float32)[:, index]
    return safetensors_np.round_bf16(products)


def int4_tensors(name: str, values: Array, form: dict, random: np.random.Generator) -> Tensors:
    stem = name.removesuffix(".weight")
    index = group_index(values.shape[1], form, random)
    q, zero, scale = quantise_int4(values, index, form)
    if form["method"] == "packed":
        tensors: Tensors = {
            name + "_packed": ("I32", words(q)), name + "_scale": (form["scales"], scale),
            name + "_shape": ("I64", np.array(values.shape))}
        if not form["symmetric"]:
            tensors[name + "_zero_point"] = ("I32", words(zero.T).T)
        if form.get("order"):
            tensors[name + "_g_idx"] = ("I32", index)
        return tensors
    if form["method"] == "awq":
        columns = np.arange(values.shape[0]).reshape(-1, 8)[:, AWQ_COLUMNS].ravel()
        return {stem + ".qweight": ("I32", words(q.T[:, columns])),
                stem + ".qzeros": ("I32", words(zero.T[:, columns])),
                stem + ".scales": (form["scales"], scale.T)}
    qzeros = words(zero.T)
    if form.get("version", "gptq") == "gptq":
        qzeros = (qzeros.view(np.uint32) - np.uint32(0x11111111)).view(np.int32)
    return {stem + ".qweight": ("I32", words(q).T), stem + ".qzeros": ("I32", qzeros),
            stem + ".scales": (form["scales"], scale.T), stem + ".g_idx": ("I32", index)}


def fp8_tensors(name: str, values: Array, form: dict) -> Tensors:
    largest = np.abs(values).max(-1, keepdims=True)
    if form["scales"] == "tensor":
        largest = largest.max(keepdims=True)
    scale = safetensors_np.round_bf16((largest / 448).astype(np.float32))
    table = quantised_np.e4m3_table()[:127]
    nearest = np.searchsorted((table[1:] + table[:-1]) / 2, np.abs(values / scale))
    packed = nearest.astype(np.uint8) | np.where(values < 0, 128, 0).astype(np.uint8)
    stored = scale.reshape(1) if form["scales"] == "tensor" else scale
    return {name: ("F8_E4M3", packed), name + "_scale": ("BF16", stored)}


def int8_tensors(name: str, values: Array, form: dict) -> Tensors:
    """A scale a row; -128 is a value, too."""
    scale = as_stored(np.abs(values).max(-1, keepdims=True) / np.float32(127.5), form["scales"])
    q = np.clip(np.rint(values / scale.astype(np.float32)), -128, 127).astype(np.int8)
    return {name: ("I8", q), name + "_scale": (form["scales"], scale)}


def mxfp4_tensors(name: str, values: Array) -> Tensors:
    rows, depth = values.shape
    padded = np.pad(values, [(0, 0), (0, -depth % 32)]).reshape(rows, -1, 32)
    exponent = np.ceil(np.log2(np.maximum(np.abs(padded).max(-1), 2.0 ** -100) / 6))
    scaled = padded / 2.0 ** exponent[..., None]
    nearest = np.searchsorted((E2M1[1:] + E2M1[:-1]) / 2, np.abs(scaled))
    codes = (nearest + np.where(scaled < 0, 8, 0)).reshape(rows, -1)[:, :depth]
    return {name + "_packed": ("U8", codes[:, 0::2] | codes[:, 1::2] << 4),
            name + "_scale": ("U8", (exponent + 127).astype(np.uint8))}


def mxfp4_fused_tensors(name: str, values: Array) -> Tensors:
    """values [E, K, N] of all experts of a layer, as gpt-oss is released."""
    experts, depth, outputs = values.shape
    rows = np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, depth)
    packed, scale = (value for _, value in mxfp4_tensors("", rows).values())
    return {name + "_blocks": ("U8", packed.reshape(experts, outputs, depth // 32, 16)),
            name + "_scales": ("U8", scale.reshape(experts, outputs, depth // 32))}


def fused_tensors_of(name: str, values: Array, form: dict) -> Tensors:
    """mxfp4_fused_tensors(), or what they stand for."""
    tensors = mxfp4_fused_tensors(name, values)
    if form["method"] == "mxfp4_fused":
        return tensors
    experts, depth, outputs = values.shape
    (_, blocks), (_, scales) = tensors.values()
    rows = expand_mxfp4(blocks.reshape(experts * outputs, -1),
                        scales.reshape(experts * outputs, -1))
    turned = rows.reshape(experts, outputs, depth).transpose(0, 2, 1)
    return {name: ("BF16", safetensors_np.to_bf16_bits(np.ascontiguousarray(turned)))}


def unfused(tensors: dict[str, Array]) -> dict[str, Array]:
    """The experts of gpt-oss with names and shapes of their own; gate and up take turns."""
    out = {}
    for name, value in tensors.items():
        stem, _, part = name.rpartition(".")
        kind = next((end for end in ("_blocks", "_scales", "_bias", "")
                     if part in ("gate_up_proj" + end, "down_proj" + end)), None)
        if kind is None:
            out[name] = value
            continue
        if kind == "_scales":
            continue
        if kind == "_blocks":
            experts, outputs = value.shape[:2]
            scales = tensors[name.removesuffix("_blocks") + "_scales"]
            value = expand_mxfp4(value.reshape(experts * outputs, -1),
                                 scales.reshape(experts * outputs, -1))
            value = value.reshape(experts, outputs, -1)
        elif kind == "":
            value = value.transpose(0, 2, 1)
        end = "bias" if kind == "_bias" else "weight"
        for expert, rows in enumerate(value):
            if part.startswith("down"):
                out[f"{stem}.{expert}.down_proj.{end}"] = rows
            else:
                out[f"{stem}.{expert}.gate_proj.{end}"] = rows[0::2]
                out[f"{stem}.{expert}.up_proj.{end}"] = rows[1::2]
    return out


def tensors_of(name: str, values: Array, form: dict, random: np.random.Generator) -> Tensors:
    """What a checkpoint in this form has for the weight `name` [N, K]."""
    if form["method"] == "fp8":
        return fp8_tensors(name, values, form)
    if form["method"] == "int8":
        return int8_tensors(name, values, form)
    if form["method"] == "mxfp4":
        return mxfp4_tensors(name, values)
    return int4_tensors(name, values, form, random)


def quantization_config(form: dict) -> dict:
    """As the programs write it."""
    group, method = form.get("group"), form["method"]
    if method == "mxfp4_fused":
        return {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]}
    if method == "gptq":
        return {"quant_method": "gptq", "bits": 4, "group_size": group, "sym": form["symmetric"],
                "desc_act": bool(form.get("order")), "damp_percent": 0.01, "lm_head": False,
                "checkpoint_format": form.get("version", "gptq")}
    if method == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
                "version": "gemm", "modules_to_not_convert": ["gate"]}
    activations = None
    if method == "int8":
        weights = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None,
                   "strategy": "channel", "dynamic": False, "observer": "minmax"}
        activations = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None,
                       "strategy": "token", "dynamic": True, "observer": None}
        kind = "int-quantized"
    elif method == "fp8":
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None,
                   "strategy": "tensor" if form["scales"] == "tensor" else "channel"}
        kind = "float-quantized"
    elif method == "mxfp4":
        weights = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 32,
                   "strategy": "group"}
        kind = "mxfp4-pack-quantized"
    else:
        weights = {"num_bits": 4, "type": "int", "symmetric": form["symmetric"],
                   "group_size": None if group == -1 else group,
                   "strategy": "channel" if group == -1 else "group",
                   "actorder": form.get("actorder", "group" if form.get("order") else None)}
        kind = "pack-quantized"
    return {"quant_method": "compressed-tensors", "format": kind,
            "ignore": form.get("ignore", ["lm_head"]),
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                          "input_activations": activations,
                                          "output_activations": None}},
            "kv_cache_scheme": None, "quantization_status": "compressed"}


def expand_transposed(tensors: dict[str, Array], stem: str, config: dict) -> Array:
    """GPTQ and AWQ, told apart by config.json."""
    packed, zeros = tensors[stem + ".qweight"], tensors[stem + ".qzeros"]
    scale = tensors[stem + ".scales"].astype(np.float32).T
    if config["quant_method"] == "awq":
        depth, outputs = packed.shape[0], packed.shape[1] * 8
        columns = np.arange(outputs).reshape(-1, 8)[:, AWQ_COLUMNS].ravel()
        back = np.argsort(columns)
        q, zero = numbers(packed, outputs)[:, back].T, numbers(zeros, outputs)[:, back].T
        group = depth if config["group_size"] == -1 else config["group_size"]
        return expand_int4(q, zero, scale, np.arange(depth) // group)
    depth, outputs = packed.shape[0] * 8, packed.shape[1]
    q = numbers(np.ascontiguousarray(packed.T), depth)
    zero = numbers(zeros, outputs).T
    if config["checkpoint_format"] == "gptq":
        zero = (zero + 1) % 16
    return expand_int4(q, zero, scale, tensors[stem + ".g_idx"].astype(np.int64))


def expand_packed(tensors: dict[str, Array], name: str) -> Array:
    outputs, depth = (int(extent) for extent in tensors[name + "_shape"])
    q, scale = numbers(tensors[name + "_packed"], depth), tensors[name + "_scale"]
    zero = np.full(scale.shape, 8)
    if name + "_zero_point" in tensors:
        stored = np.ascontiguousarray(tensors[name + "_zero_point"].T)
        zero = numbers(stored, outputs).T
    groups = scale.shape[1]
    index = tensors.get(name + "_g_idx")
    if index is None:
        # Groups are of 32, 64 or 128, and only the last may be shorter.
        size = next(s for s in (32, 64, 128, depth) if -(-depth // s) == groups)
        index = np.arange(depth) // size
    return expand_int4(q, zero, scale.astype(np.float32), index.astype(np.int64))


def expand_mxfp4(packed: Array, scale: Array) -> Array:
    codes = np.stack((packed & 15, packed >> 4), -1).reshape(len(packed), -1)
    values = np.where(codes < 8, 1.0, -1.0) * E2M1[codes & 7]
    wide = np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, axis=-1)
    return (values * wide[:, :codes.shape[1]]).astype(np.float32)


def expand_fp8(packed: Array, scale: Array) -> Array:
    values = quantised_np.e4m3_table()[packed].astype(np.float32) * scale.astype(np.float32)
    return safetensors_np.round_bf16(values)


def expand_int8(values: Array, scale: Array) -> Array:
    return safetensors_np.round_bf16(values.astype(np.float32) * scale.astype(np.float32))


def expanded(tensors: dict[str, Array], config: dict) -> dict[str, Array]:
    """All weights by their plain names; the others as they are, and those in int8, with scales [N].

    Of the latter kv_b_proj is expanded, since it is absorbed into the query.
    """
    tensors = unfused(tensors)
    quantisation = config.get("quantization_config") or {}
    if quantisation.get("quant_method") not in ("gptq", "awq", "compressed-tensors"):
        return tensors
    is_mxfp4 = quantisation.get("format") == "mxfp4-pack-quantized"
    out = {}
    for name, value in tensors.items():
        if name.endswith(".qweight"):
            stem = name.removesuffix(".qweight")
            out[stem + ".weight"] = expand_transposed(tensors, stem, quantisation)
        elif name.endswith("_packed"):
            weight = name.removesuffix("_packed")
            out[weight] = (expand_mxfp4(value, tensors[weight + "_scale"]) if is_mxfp4
                           else expand_packed(tensors, weight))
        elif quantisation.get("format") == "float-quantized" and name + "_scale" in tensors:
            out[name] = expand_fp8(value, tensors[name + "_scale"])
        elif quantisation.get("format") == "int-quantized" and name + "_scale" in tensors:
            scale = tensors[name + "_scale"]
            if name.endswith(".kv_b_proj.weight"):
                out[name] = expand_int8(value, scale)
            else:
                out[name], out[name + "_scale"] = value, scale.reshape(-1).astype(np.float32)
        elif not re.search(r"(_scale|_zero_point|_shape|_g_idx|\.qzeros|\.scales|\.g_idx)$", name):
            out[name] = value
    return out
