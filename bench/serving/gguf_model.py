"""A random checkpoint of tests/golden/make_checkpoint.py as a GGUF file, for llama.cpp to read the
same bf16 weights. For bench_llama_cpp.py; families deepseek_v3 (without YaRN) and qwen3_moe."""
import json
import pathlib
import struct
import types
from collections.abc import Iterator

import numpy as np

EXPERT_PARTS = ("gate", "up", "down")


class Checkpoint:
    """Tensors of a directory of safetensors, which stay in their files."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.config = json.loads((directory / "config.json").read_text())
        self.tokenizer = json.loads((directory / "tokenizer.json").read_text())
        self.tensors: dict[str, tuple[str, list[int], np.ndarray]] = {}
        for path in sorted(directory.glob("*.safetensors")):
            file = np.memmap(path, np.uint8, "r")
            data = 8 + struct.unpack("<Q", file[:8].tobytes())[0]
            for name, tensor in json.loads(file[8:data].tobytes()).items():
                if name != "__metadata__":
                    begin, end = tensor["data_offsets"]
                    self.tensors[name] = (
                        tensor["dtype"], tensor["shape"], file[data + begin:data + end])

    def bf16(self, name: str) -> np.ndarray:
        """Bits, uint16. Raises ValueError if it is of another type."""
        dtype, shape, data = self.tensors[name]
        if dtype != "BF16":
            raise ValueError(f"{name} is {dtype}, not BF16")
        return np.asarray(data).view(np.uint16).reshape(shape)

    def floats(self, name: str) -> np.ndarray:
        dtype, shape, data = self.tensors[name]
        if dtype == "F32":
            return np.asarray(data).view(np.float32).reshape(shape)
        return (self.bf16(name).astype(np.uint32) << 16).view(np.float32)

    def experts(self, prefix: str, num_experts: int) -> Iterator[tuple[str, np.ndarray]]:
        for part in EXPERT_PARTS:
            yield part, np.stack([self.bf16(f"{prefix}experts.{e}.{part}_proj.weight")
                                  for e in range(num_experts)])


class GgufModel:
    """A writer of gguf-py with the names of llama.cpp's tensors."""

    def __init__(self, gguf: types.ModuleType, checkpoint: Checkpoint, out: pathlib.Path,
                 architecture: str) -> None:
        self.gguf = gguf
        self.checkpoint = checkpoint
        self.writer = gguf.GGUFWriter(out, architecture)

    def put_bf16(self, name: str, bits: np.ndarray) -> None:
        self.writer.add_tensor(f"{name}.weight", np.ascontiguousarray(bits).view(np.uint8),
                               raw_dtype=self.gguf.GGMLQuantizationType.BF16)

    def put_floats(self, name: str, values: np.ndarray) -> None:
        """Norms and routers: llama.cpp computes these in fp32 only."""
        self.writer.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def copy_bf16(self, names: dict[str, str]) -> None:
        for to, name in names.items():
            self.put_bf16(to, self.checkpoint.bf16(f"{name}.weight"))

    def copy_floats(self, names: dict[str, str]) -> None:
        for to, name in names.items():
            self.put_floats(f"{to}.weight", self.checkpoint.floats(f"{name}.weight"))

    def put_common(self) -> None:
        config, writer = self.checkpoint.config, self.writer
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(float(config["rope_theta"]))
        writer.add_rope_scaling_type(self.gguf.RopeScalingType.NONE)
        writer.add_vocab_size(config["vocab_size"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_file_type(self.gguf.LlamaFileType.MOSTLY_BF16)
        self.copy_bf16({"token_embd": "model.embed_tokens", "output": "lm_head"})
        self.copy_floats({"output_norm": "model.norm"})

    def put_tokenizer(self) -> None:
        """Names of the ids; benchmarks of llama.cpp draw ids and look at nothing else."""
        config, tokenizer = self.checkpoint.config, self.checkpoint.tokenizer
        special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
        names = {id_: name for name, id_ in tokenizer["model"]["vocab"].items()} | special
        kind = self.gguf.TokenType
        self.writer.add_tokenizer_model("gpt2")
        self.writer.add_tokenizer_pre("gpt-2")
        ids = range(config["vocab_size"])
        self.writer.add_token_list([names.get(id_, f"[PAD{id_}]") for id_ in ids])
        self.writer.add_token_types([kind.CONTROL if id_ in special else kind.NORMAL
                                     if id_ in names else kind.UNUSED for id_ in ids])
        self.writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge)
                                      for merge in tokenizer["model"]["merges"]])
        self.writer.add_bos_token_id(config["bos_token_id"])
        self.writer.add_eos_token_id(config["eos_token_id"])

    def put_norms(self, layer: int) -> None:
        self.copy_floats({f"blk.{layer}.attn_norm": f"model.layers.{layer}.input_layernorm",
                          f"blk.{layer}.ffn_norm": f"model.layers.{layer}.post_attention_layernorm"})

    def put_experts(self, layer: int, num_experts: int) -> None:
        prefix = f"model.layers.{layer}.mlp."
        self.copy_floats({f"blk.{layer}.ffn_gate_inp": f"{prefix}gate"})
        for part, bits in self.checkpoint.experts(prefix, num_experts):
            self.put_bf16(f"blk.{layer}.ffn_{part}_exps", bits)

    def write(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def put_deepseek_v3(model: GgufModel) -> None:
    config, writer, gguf = model.checkpoint.config, model.writer, model.gguf
    rope, nope, latent, value = (config[key] for key in (
        "qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank", "v_head_dim"))
    writer.add_head_count_kv(1)
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_key_length(latent + rope)
    writer.add_value_length(latent)
    writer.add_key_length_mla(nope + rope)
    writer.add_value_length_mla(value)
    writer.add_rope_dimension_count(rope)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    for layer in range(config["num_hidden_layers"]):
        block, attention = f"blk.{layer}.", f"model.layers.{layer}.self_attn."
        mlp = f"model.layers.{layer}.mlp."
        model.put_norms(layer)
        model.copy_floats({f"{block}attn_q_a_norm": f"{attention}q_a_layernorm",
                           f"{block}attn_kv_a_norm": f"{attention}kv_a_layernorm"})
        model.copy_bf16({f"{block}attn_q_a": f"{attention}q_a_proj",
                         f"{block}attn_q_b": f"{attention}q_b_proj",
                         f"{block}attn_kv_a_mqa": f"{attention}kv_a_proj_with_mqa",
                         f"{block}attn_output": f"{attention}o_proj"})
        # A head's keys transposed, since they multiply the query (the absorbed form).
        keys_values = model.checkpoint.bf16(f"{attention}kv_b_proj.weight").reshape(
            config["num_attention_heads"], nope + value, latent)
        model.put_bf16(f"{block}attn_k_b", keys_values[:, :nope].transpose(0, 2, 1))
        model.put_bf16(f"{block}attn_v_b", keys_values[:, nope:])
        if layer < config["first_k_dense_replace"]:
            model.copy_bf16({f"{block}ffn_{part}": f"{mlp}{part}_proj" for part in EXPERT_PARTS})
            continue
        model.put_floats(f"{block}exp_probs_b.bias",
                         model.checkpoint.floats(f"{mlp}gate.e_score_correction_bias"))
        model.put_experts(layer, config["n_routed_experts"])
        model.copy_bf16({f"{block}ffn_{part}_shexp": f"{mlp}shared_experts.{part}_proj"
                         for part in EXPERT_PARTS})


def put_qwen3_moe(model: GgufModel) -> None:
    config, writer = model.checkpoint.config, model.writer
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_expert_count(config["num_experts"])
    for layer in range(config["num_hidden_layers"]):
        block, attention = f"blk.{layer}.", f"model.layers.{layer}.self_attn."
        model.put_norms(layer)
        model.copy_floats({f"{block}attn_{part}_norm": f"{attention}{part}_norm" for part in "qk"})
        model.copy_bf16({f"{block}attn_{part}": f"{attention}{part}_proj" for part in "qkv"})
        model.copy_bf16({f"{block}attn_output": f"{attention}o_proj"})
        model.put_experts(layer, config["num_experts"])


# What llama.cpp calls the architecture, and what only it has.
FAMILIES = {"deepseek_v3": ("deepseek2", put_deepseek_v3),
            "qwen3_moe": ("qwen3moe", put_qwen3_moe)}


def write_gguf(directory: pathlib.Path, out: pathlib.Path, gguf: types.ModuleType) -> None:
    """gguf: the module of llama.cpp's gguf-py. Raises KeyError for another family."""
    checkpoint = Checkpoint(directory)
    architecture, put_family = FAMILIES[checkpoint.config["model_type"]]
    model = GgufModel(gguf, checkpoint, out, architecture)
    model.put_common()
    model.put_tokenizer()
    put_family(model)
    model.write()
