#!/usr/bin/env python3
"""tools/model_memory.py counts the bytes that checkpoints really have.

    model_memory_test.py AFD_QUANTIZE        path of the program

Oracle: the tensors of random checkpoints of each family's shape that tests/golden writes, and of
those that afd-quantize makes of them: what their safetensors files say, not their sizes in theory.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "golden"), str(HERE.parent.parent / "tools")]
import make_checkpoint  # noqa: E402  (found in tests/golden)
import model_memory  # noqa: E402  (found in tools)

AFD_QUANTIZE = ""
RELEASED = HERE.parent / "model" / "family" / "released"


def is_mlp(name: str) -> bool:
    return ((".mlp." in name or ".block_sparse_moe." in name) and ".gate." not in name
            and ".shared_expert_gate." not in name and ".router." not in name
            and "e_score_correction_bias" not in name)


def tensor_bytes(folder: pathlib.Path) -> dict[str, int]:
    """Of each tensor."""
    sizes = {}
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        for name, tensor in header.items():
            if name != "__metadata__":
                first, end = tensor["data_offsets"]
                sizes[name] = end - first
    return sizes


def stored_bytes(folder: pathlib.Path) -> tuple[dict, int, int]:
    """config.json; bytes of the MLPs' tensors, and of the others, in layers that are loaded."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    beyond = f"model.layers.{config['num_hidden_layers']}."
    sizes = {name: size for name, size in tensor_bytes(folder).items()
             if not name.startswith(beyond)}
    mlps = sum(size for name, size in sizes.items() if is_mlp(name))
    return config, mlps, sum(sizes.values()) - mlps


def head_bytes(config: dict) -> int:
    """Of a head that a worker packs beside the embedding, and no file has."""
    is_tied = config.get("tie_word_embeddings", False)
    return 2 * config["vocab_size"] * config["hidden_size"] if is_tied else 0


class ModelMemory(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def quantised(self, variant: str, *options: str) -> pathlib.Path:
        out = self.root / (variant + "".join(options))
        subprocess.run([AFD_QUANTIZE, self.root / variant, "--out", out, *options],
                       check=True, capture_output=True)
        return out

    def test_every_variant_in_bf16(self) -> None:
        # The others have something in F32 or F16, a table of ids, are large, or in another form.
        variants = set(make_checkpoint.ALL_VARIANTS) - {
            "v2_group", "v3_fp16", "v4_router", "medium", "v3_fp8", "v3_fp8_ue8m0",
            "minimax_m2", "minimax_m2_odd", "minimax_m2_f32_router"}
        variants -= {name for name in variants
                     if {"form", "layout"} & make_checkpoint.variant_of(name).keys()}
        self.assertGreaterEqual(len(variants), 12)
        for variant in sorted(variants):
            with self.subTest(variant):
                make_checkpoint.make_checkpoint(variant, self.root / variant)
                config, mlps, others = stored_bytes(self.root / variant)
                self.assertEqual(model_memory.mlp_bytes(config, "bf16"), mlps)
                self.assertEqual(model_memory.other_bytes(config), others + head_bytes(config))

    def test_a_head_that_is_the_embedding_is_held_twice(self) -> None:
        """As `afd-quantize --dry-run` says what a worker holds (model/decoder/serving_memory.cc)."""
        config = json.loads((RELEASED / "mixtral_8x7b.json").read_text("utf-8"))
        tied = dict(config, tie_word_embeddings=True)
        self.assertEqual(model_memory.other_bytes(tied), model_memory.other_bytes(config))
        self.assertEqual(model_memory.num_parameters(tied),
                         model_memory.num_parameters(config) - 32000 * 4096)

    # As released: a file has them in fp32, a worker in three parts of bf16.
    def test_routers_of_minimax(self) -> None:
        folder = self.root / "minimax"
        make_checkpoint.make_checkpoint("minimax_m2_f32_router", folder)
        config, mlps, others = stored_bytes(folder)
        routers = sum(size for name, size in tensor_bytes(folder).items()
                      if name.endswith(".block_sparse_moe.gate.weight"))
        self.assertGreater(routers, 0)
        self.assertEqual(model_memory.mlp_bytes(config, "bf16"), mlps)
        self.assertEqual(model_memory.other_bytes(config), others + routers // 4 * 2)
        self.assertEqual(model_memory.num_parameters(config),
                         mlps // 2 + (others - routers) // 2 + routers // 4
                         - model_memory.balancing_biases(config))

    def test_fp8_as_released(self) -> None:
        make_checkpoint.make_checkpoint("v3_fp8", self.root / "v3_fp8")
        config, mlps, others = stored_bytes(self.root / "v3_fp8")
        self.assertEqual(model_memory.mlp_bytes(config, "fp8"), mlps)
        # Attention is in fp8 there too, and becomes bf16 on loading.
        self.assertGreater(model_memory.other_bytes(config), others)

    def test_what_afd_quantize_writes(self) -> None:
        for variant in ("v3", "qwen2_moe_odd", "mixtral_odd", "glm4_moe_odd",
                        "gpt_oss_odd"):
            make_checkpoint.make_checkpoint(variant, self.root / variant)
            for weight_format in ("int8", "int4"):
                with self.subTest(variant=variant, format=weight_format):
                    config, mlps, others = stored_bytes(
                        self.quantised(variant, "--experts", weight_format))
                    self.assertEqual(model_memory.mlp_bytes(config, weight_format), mlps)
                    self.assertEqual(model_memory.other_bytes(config), others)

    # What the publishers say, who round: billions of parameters.
    def test_parameters_of_the_releases(self) -> None:
        for name, billions in {"mixtral_8x7b": 46.7, "qwen3_30b_a3b": 30.5, "olmoe_1b_7b": 6.9,
                               "qwen1_5_moe_a2_7b": 14.3, "moonlight_16b_a3b": 16.0,
                               "gpt_oss_20b": 20.9, "gpt_oss_120b": 116.8,
                               "deepseek_moe_16b": 16.4, "deepseek_v2_lite": 15.7,
                               "deepseek_v3": 671.0, "mixtral_8x22b": 140.6,
                               "qwen2_57b_a14b": 57.4}.items():
            config = json.loads((RELEASED / f"{name}.json").read_text("utf-8"))
            counted = model_memory.num_parameters(config) / 1e9
            self.assertAlmostEqual(counted, billions, delta=0.05, msg=name)


if __name__ == "__main__":
    AFD_QUANTIZE = sys.argv.pop(1)
    unittest.main()
