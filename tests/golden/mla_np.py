"""MlaPrologV3 and MlaAttention in NumPy, over every scenario, cache mode and cache format.

Written from the seed's page and docs/specification.md, sections 9 to 11, alone. Sums are float64,
so they are the exact values that the operators' fp32 chains approximate; every rounding point to
bf16 and every quantisation is applied. Scales and elementwise steps are float32, each rounded on
its own.
mla_cases.py makes inputs and compares results.
"""
import numpy as np

import safetensors_np as st

F32 = np.float32
BLOCK = 64  # Positions of one step of the online softmax.


def bf16(x: np.ndarray) -> np.ndarray:
    """float32 values rounded once to bf16."""
    return st.round_bf16(np.asarray(x, dtype=F32))


def rows_of(tensor: np.ndarray, num_tokens: int) -> np.ndarray:
    """[T, ...] of a tensor on axes [T] or [B, S]: everything behind the tokens flat."""
    return tensor.reshape(num_tokens, -1)


def matrix(weight: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """[rows, cols] of a row-major or FRACTAL_NZ matrix, in float64."""
    if weight.ndim == 4:  # [column blocks, row blocks, 16, c0]
        down, across = weight.shape[1] * 16, weight.shape[0] * weight.shape[3]
        weight = weight.transpose(1, 2, 0, 3).reshape(down, across)[:rows, :cols]
    return weight.astype(np.float64)


def to_fractal_nz(weight: np.ndarray) -> np.ndarray:
    c0 = 32 // (2 if weight.dtype == np.uint16 else weight.itemsize)
    rows, cols = (-(-size // step) for size, step in zip(weight.shape, (16, c0)))
    padded = np.zeros((rows * 16, cols * c0), weight.dtype)
    padded[:weight.shape[0], :weight.shape[1]] = weight
    return np.ascontiguousarray(padded.reshape(rows, 16, cols, c0).transpose(2, 0, 1, 3))


def quantise(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Section 9 over the last axis: int8 values and fp32 scales [..., 1]."""
    v = np.asarray(v, dtype=F32)
    finite = np.isfinite(v).all(axis=-1, keepdims=True)
    largest = np.abs(np.where(finite, v, F32(0))).max(axis=-1, keepdims=True)
    scale = np.where(finite, largest, np.nan)
    scale = (scale.astype(F32) / F32(127)).astype(F32)
    divisor = np.where(finite & (scale > 0), scale, F32(1))
    q = np.clip(np.rint(np.where(finite, v, F32(0)) / divisor), -127, 127)
    return np.where(finite & (scale > 0), q, 0).astype(np.int8), scale


def saturate(v: np.ndarray) -> np.ndarray:
    numbers = np.nan_to_num(v, nan=0.0, posinf=1e9, neginf=-1e9)
    return np.clip(np.rint(numbers), -128, 127).astype(np.int8)


def rms_norm(x: np.ndarray, gamma: np.ndarray, epsilon: float, scale: float) -> np.ndarray:
    wide = x.astype(np.float64)
    root = np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + epsilon).astype(F32)
    return (x.astype(F32) / root) * gamma.astype(F32) * F32(scale)


def rope(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x [..., Dr] of interleaved pairs; the result is in half layout, not rounded."""
    even, odd = x[..., 0::2].astype(F32), x[..., 1::2].astype(F32)
    straight = np.concatenate([even, odd], axis=-1)
    turned = np.concatenate([-odd, even], axis=-1)
    return straight * cos + turned * sin


def int8_product(x, x_scale, weight, column_scale):
    """float32(exact sum) · row scale · column scale."""
    sums = np.rint(x.astype(np.float64) @ weight).astype(F32)
    return sums * x_scale.reshape(-1, 1).astype(F32) * column_scale.reshape(1, -1)


def cache_rows(inputs: dict, attrs: dict, num_tokens: int, merged_axes: bool,
               seq: int) -> list[int]:
    """The cache row of every token, -1 where none is written."""
    mode = attrs["cache_mode"]
    if mode in ("BSND", "TND"):
        return list(range(num_tokens))
    index = inputs["cache_index"].reshape(-1)
    if "BLK" not in mode:
        return [int(i) for i in index]
    block_size = inputs["kv_cache"].shape[1]
    if merged_axes:
        ends = [int(end) for end in inputs["actual_seq_len"]]
    else:
        ends = list(range(seq, num_tokens + 1, seq))
    rows, entry, begin = [], 0, 0
    for end in ends:
        for place in range(end - begin):
            block = int(index[entry + place // block_size])
            rows.append(-1 if block < 0 else block * block_size + place % block_size)
        entry += -(-(end - begin) // block_size)
        begin = end
    return rows


def row_bytes_view(cache: np.ndarray, mode: str):
    """(words, place): `place(row)` indexes the elements of that row in the flat array `words`."""
    words = cache.reshape(-1)
    size = cache.shape[-1]
    if mode not in ("PA_NZ", "PA_BLK_NZ"):
        return words, lambda row: np.arange(size) + row * size
    height, c0 = cache.shape[1], 32 // cache.itemsize
    columns = np.arange(size)

    def place(row):
        return (row // height) * height * size + (columns // c0) * height * c0 + (
            row % height) * c0 + columns % c0
    return words, place


def tile_row(ckv: np.ndarray, kr: np.ndarray, tile: int, alpha: float) -> np.ndarray:
    """The bytes of a per-tile row: int8 latent | bf16 key | fp32 scales."""
    tiles = ckv.reshape(-1, tile)
    finite = np.isfinite(tiles).all(axis=-1)
    limit = (F32(alpha) * np.where(finite, np.abs(tiles).max(axis=-1), np.nan)).astype(F32)
    scale = (limit / F32(127)).astype(F32)
    usable = finite & (scale > 0)
    bound = np.nan_to_num(limit)[:, None]
    clipped = np.clip(np.nan_to_num(tiles), -bound, bound)
    q = np.clip(np.rint(clipped / np.where(usable, scale, F32(1))[:, None]), -127, 127)
    q = np.where(usable[:, None], q, 0).astype(np.int8).reshape(-1)
    return np.concatenate([q, st.to_bf16_bits(kr).view(np.int8), scale.view(np.int8)])


def mla_prolog_v3(inputs: dict, attrs: dict) -> dict:
    """Inputs and results under the seed's names: bf16 as float32 values, caches as raw words."""
    x = inputs["token_x"]
    merged_axes = x.ndim == 2
    lead = x.shape[:-1]
    t, he = int(np.prod(lead)), x.shape[-1]
    heads, d, latent = inputs["weight_uk"].shape
    dr = inputs["rope_sin"].shape[-1]
    weight_mode, kv_mode = attrs["weight_quant_mode"], attrs["kv_cache_quant_mode"]
    query_mode = attrs["query_quant_mode"]
    x = rows_of(x, t)
    cos, sin = rows_of(inputs["rope_cos"], t), rows_of(inputs["rope_sin"], t)
    out = {}

    def linear(rows, weight, column_scale=None, row_scale=None):
        if column_scale is not None:
            return int8_product(rows, row_scale, weight, column_scale)
        return bf16(rows.astype(np.float64) @ weight)

    full = weight_mode == 2
    x_scale = inputs.get("dequant_scale_x")
    if "weight_dq" in inputs:
        hcq = inputs["rmsnorm_gamma_cq"].shape[0]
        cq = linear(x, matrix(inputs["weight_dq"], he, hcq),
                    inputs.get("dequant_scale_w_dq"), x_scale)
        n = rms_norm(cq, inputs["rmsnorm_gamma_cq"], attrs["rmsnorm_epsilon_cq"],
                     attrs["qc_qr_scale"])
        if not full:
            n = bf16(n)
        uq = matrix(inputs["weight_uq_qr"], hcq, heads * (d + dr))
        if weight_mode == 0:
            qq = linear(n, uq)
            norm = n
        else:
            if "smooth_scales_cq" in inputs:
                n = n * inputs["smooth_scales_cq"].reshape(1, -1)
            norm, norm_scale = quantise(n)
            qq = int8_product(norm, norm_scale, uq, inputs["dequant_scale_w_uq_qr"])
            if not full:
                qq = bf16(qq)
        if attrs["query_norm_flag"]:
            out["query_norm"] = norm.reshape(*lead, hcq)
            if weight_mode:
                out["dequant_scale_q_norm"] = norm_scale.reshape(t, 1)
    else:
        qq = linear(x, matrix(inputs["weight_uq_qr"], he, heads * (d + dr)))

    qq = qq.reshape(t, heads, d + dr)
    nope = bf16(qq[..., :d]).astype(np.float64)
    query = bf16(np.einsum("thd,hdc->thc", nope, inputs["weight_uk"].astype(np.float64)))
    turned = rope(qq[..., d:], cos[:, None, :], sin[:, None, :])
    if query_mode:
        query, scale = quantise(query)
        scale = np.where(scale == 0, F32(1), scale).astype(F32)
        turned = bf16(turned)
        if kv_mode == 1:
            turned = turned * inputs["quant_scale_ckv"][0]
        turned = turned / scale
        out["dequant_scale_q_nope"] = scale.reshape(t, heads, 1)
    out["query"] = query.reshape(*lead, heads, latent)
    out["query_rope"] = bf16(turned).reshape(*lead, heads, dr)

    kv = linear(x, matrix(inputs["weight_dkv_kr"], he, latent + dr),
                inputs.get("dequant_scale_w_dkv_kr"), x_scale)
    ckv = rms_norm(kv[:, :latent], inputs["rmsnorm_gamma_ckv"], attrs["rmsnorm_epsilon_ckv"],
                   attrs["kc_scale"])
    kr = rope(kv[:, latent:], cos, sin)
    rows = cache_rows(inputs, attrs, t, merged_axes, lead[-1])
    out.update(write_caches(inputs, attrs, rows, ckv, kr))
    return out


def write_caches(inputs: dict, attrs: dict, rows: list[int], ckv, kr) -> dict:
    mode, kv_mode = attrs["cache_mode"], attrs["kv_cache_quant_mode"]
    kv_cache = inputs["kv_cache"].copy()
    kv_words, kv_place = row_bytes_view(kv_cache, mode)
    if kv_mode == 3:
        alpha = float(inputs["k_nope_clip_alpha"][0]) if "k_nope_clip_alpha" in inputs else 1.0
        for t, row in enumerate(rows):
            if row >= 0:
                kv_words[kv_place(row)] = tile_row(ckv[t], kr[t], attrs["tile_size"], alpha)
        return {"kv_cache": kv_cache}
    kr_cache = inputs["kr_cache"].copy()
    kr_words, kr_place = row_bytes_view(kr_cache, mode)
    if kv_mode == 0:
        ckv = st.to_bf16_bits(ckv)
    else:
        ckv = saturate(ckv * inputs["quant_scale_ckv"].reshape(-1))
    if kv_mode == 2:
        kr = saturate(kr * inputs["quant_scale_ckr"].reshape(-1))
    else:
        kr = st.to_bf16_bits(kr)
    for t, row in enumerate(rows):
        if row >= 0:
            kv_words[kv_place(row)] = ckv[t]
            kr_words[kr_place(row)] = kr[t]
    return {"kv_cache": kv_cache, "kr_cache": kr_cache}


def read_cache(inputs: dict, attrs: dict, rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows dequantised to float32: ckv [R, Hckv], kr [R, Dr]."""
    kv_mode, mode = attrs["kv_cache_quant_mode"], attrs["cache_mode"]
    words, place = row_bytes_view(inputs["kv_cache"], mode)
    raw = np.stack([words[place(row)] for row in rows])
    latent, dr = inputs["query"].shape[-1], inputs["query_rope"].shape[-1]
    if kv_mode == 3:
        tile = attrs["tile_size"]
        scales = np.ascontiguousarray(raw[:, latent + 2 * dr:]).view(F32)
        ckv = raw[:, :latent].astype(F32) * np.repeat(scales, tile, axis=1)
        key = np.ascontiguousarray(raw[:, latent:latent + 2 * dr]).view(np.uint16)
        return ckv, st.from_bf16_bits(key)
    words, place = row_bytes_view(inputs["kr_cache"], mode)
    key = np.stack([words[place(row)] for row in rows])
    if kv_mode == 0:
        return st.from_bf16_bits(raw), st.from_bf16_bits(key)
    ckv = raw.astype(F32) / inputs["quant_scale_ckv"].reshape(-1)
    if kv_mode == 2:
        return ckv, key.astype(F32) / inputs["quant_scale_ckr"].reshape(-1)
    return ckv, st.from_bf16_bits(key) / inputs["quant_scale_ckv"].reshape(-1)


def position_rows(inputs: dict, attrs: dict, sequence: int, count: int) -> list[int]:
    """The cache rows of positions 0 ... count - 1 of one sequence."""
    if attrs["cache_mode"] == "TND":
        begin = 0 if sequence == 0 else int(inputs["actual_seq_len"][sequence - 1])
        return list(range(begin, begin + count))
    size = inputs["kv_cache"].shape[1]
    if attrs["cache_mode"] == "BSND":
        return list(range(sequence * size, sequence * size + count))
    table = inputs["block_table"][sequence]
    return [int(table[p // size]) * size + p % size for p in range(count)]


def attend(query, query_rope, scale, softmax_scale, ckv, kr) -> np.ndarray:
    """[N, Hckv] of one token: online softmax over blocks, P and the result rounded."""
    scores = query.astype(np.float64) @ ckv.astype(np.float64).T
    scores = scores + query_rope.astype(np.float64) @ kr.astype(np.float64).T
    scores = (scores * scale * softmax_scale).astype(F32).astype(np.float64)
    top = np.full((len(query), 1), -np.inf)
    total = np.zeros((len(query), 1))
    o = np.zeros((len(query), ckv.shape[1]))
    for first in range(0, scores.shape[1], BLOCK):
        part = scores[:, first:first + BLOCK]
        new_top = np.maximum(top, part.max(axis=1, keepdims=True))
        p = np.exp(part - new_top)
        decay = np.exp(top - new_top)
        total = total * decay + p.sum(axis=1, keepdims=True)
        o = o * decay + bf16(p).astype(np.float64) @ ckv[first:first + BLOCK].astype(np.float64)
        top = new_top
    return bf16(o / total)


def mla_attention_v3(inputs: dict, attrs: dict) -> dict:
    lead = inputs["query"].shape[:-2]
    heads, latent = inputs["query"].shape[-2:]
    t = int(np.prod(lead))
    query = inputs["query"].reshape(t, heads, latent)
    query_rope = inputs["query_rope"].reshape(t, heads, -1)
    positions = inputs["positions"].reshape(-1)
    if "sequence_index" in inputs:
        sequences = inputs["sequence_index"].reshape(-1)
    else:
        sequences = np.arange(t) // lead[-1]
    scales = inputs.get("dequant_scale_q_nope", np.ones((t, heads, 1), F32)).reshape(t, heads, 1)
    values = []
    for i in range(t):
        rows = position_rows(inputs, attrs, int(sequences[i]), int(positions[i]) + 1)
        ckv, kr = read_cache(inputs, attrs, rows)
        out = attend(query[i], query_rope[i], scales[i], attrs["softmax_scale"], ckv, kr)
        values.append(bf16(np.einsum("hc,hvc->hv", out.astype(np.float64),
                                     inputs["weight_uv"].astype(np.float64))).reshape(-1))
    values = np.stack(values)
    if "weight_o" in inputs:
        values = bf16(values.astype(np.float64) @ inputs["weight_o"].astype(np.float64))
    return {"attention_out": values.reshape(*lead, -1)}


OPERATORS = {"mla_prolog_v3": mla_prolog_v3, "mla_attention_v3": mla_attention_v3}
