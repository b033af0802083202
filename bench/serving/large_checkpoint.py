#!/usr/bin/env python3
"""Writes a random checkpoint with the dimensions of DeepSeek-V2-Lite, shard by shard.

    large_checkpoint.py --out DIR [--layers 27] [--shard-gib 4]

29.3 GiB of bf16 with all 27 layers, in half a GiB of memory. For afd-quantize and afdd on models
larger than memory: values are parts of one pool of random numbers, scaled by role as
tests/golden/make_checkpoint.py does, so speeds and sizes mean something and texts do not.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "golden"))
import make_checkpoint  # noqa: E402  (found in tests/golden, like the next one)
import safetensors_np  # noqa: E402

V2_LITE = {
    **make_checkpoint.BASE, **make_checkpoint.V2,
    "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_key_value_heads": 16,
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "n_group": 1, "topk_group": 1, "topk_method": "greedy", "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0, "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
                     "mscale": 0.707, "mscale_all_dim": 0.707,
                     "original_max_position_embeddings": 4096}}

POOL = 1 << 26  # Elements.
PART = 1 << 22  # Written at once.


class Values:
    """Random numbers as a file wants them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.pool = self.random.standard_normal(POOL, dtype=np.float32)

    def scale(self, name: str, shape: tuple[int, ...], config: dict) -> tuple[float, float]:
        """Mean and standard deviation by role."""
        one = make_checkpoint.random_tensor(name, (1, shape[-1]), config, self.random)
        return (1.0, 0.1) if name.endswith("norm.weight") else (0.0, float(one.std()))

    def write(self, file, name: str, shape: tuple[int, ...], config: dict) -> None:
        mean, deviation = self.scale(name, shape, config)
        left = int(np.prod(shape))
        while left > 0:
            count = min(left, PART)
            first = int(self.random.integers(POOL - count + 1))
            part = self.pool[first:first + count] * np.float32(deviation) + np.float32(mean)
            file.write(safetensors_np.to_bf16_bits(part).tobytes())
            left -= count


def shards_of(shapes: dict[str, tuple[int, ...]], limit: int) -> list[dict[str, tuple[int, ...]]]:
    shards, size = [{}], 0
    for name, shape in shapes.items():
        size_of = 2 * int(np.prod(shape))
        if shards[-1] and size + size_of > limit:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += size_of
    return shards


def write_shard(path: pathlib.Path, shapes: dict[str, tuple[int, ...]], values: Values,
                config: dict) -> int:
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            values.write(file, name, shape, config)
    return end


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=27)
    parser.add_argument("--shard-gib", type=float, default=4)
    arguments = parser.parse_args()
    config = {**V2_LITE, "num_hidden_layers": arguments.layers}
    out = arguments.out
    out.mkdir(parents=True)
    shards = shards_of(make_checkpoint.checkpoint_shapes(config),
                       int(arguments.shard_gib * 2 ** 30))
    values, weight_map, total = Values(1), {}, 0
    for number, shapes in enumerate(shards):
        file = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        total += write_shard(out / file, shapes, values, config)
        weight_map.update({name: file for name in shapes})
        print(f"{file}: {total / 2 ** 30:.1f} GiB so far", flush=True)
    make_checkpoint.write_json(out / "model.safetensors.index.json",
                               {"metadata": {"total_size": total}, "weight_map": weight_map})
    make_checkpoint.write_json(out / "tokenizer.json",
                               make_checkpoint.tokenizer_json(config["vocab_size"]))
    make_checkpoint.write_json(out / "config.json", config)


if __name__ == "__main__":
    main()
