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
    recollected: tuple[str, ...] = ()       # All others are confirmed.
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
    "dots_llm1": Source(
        "transformers; mlxcel (a shortened copy of the Instruct release, which has null for "
        "`n_group` and `topk_group` and no `head_dim`); `scoring_func` in llama.cpp's conversion",
        ("eos_token_id", "moe_layer_freq", "pretraining_tp", "rope_scaling", "sliding_window",
         "torch_dtype", "use_sliding_window")),
    "glm_4_5": Source(
        "Megatron-Bridge (made for its test: `rms_norm_eps` and `eos_token_id` differ); "
        "transformers; slime",
        ("eos_token_id", "num_nextn_predict_layers", "pad_token_id", "rope_scaling",
         "transformers_version")),
    "glm_4_5_air": Source(
        "taken from the published file; again in a configuration that ms-swift printed (repository "
        "not noted), where `transformers_version` is newer"),
    "glm_4_7_flash": Source(
        "transformers; aiconfigurator; slime",
        ("dtype", "eos_token_id", "num_nextn_predict_layers", "pad_token_id",
         "partial_rotary_factor", "rope_scaling", "topk_method", "transformers_version")),
    "gpt_oss_120b": Source("MaxText", ("quantization_config",)),
    "gpt_oss_20b": Source(
        "MaxText; `EchoCog/gpt-oss-20b`, `config.json`, where only `quant_method` was changed"),
    "kimi_k2": Source(
        "aiconfigurator; slime; the rest of `rope_scaling` in a report of Kimi-K2-0905 "
        "(`ParagEkbote/hf-model-inspector`)",
        ("attention_bias", "attention_dropout", "aux_loss_alpha", "bos_token_id", "eos_token_id",
         "initializer_range", "norm_topk_prob", "num_nextn_predict_layers", "pretraining_tp",
         "quantization_config", "seq_aux", "transformers_version")),
    "minimax_m2": Source("mistral.rs; transformers", ("bos_token_id", "eos_token_id")),
    "mixtral_8x7b": Source("TensorRT-LLM; MaxText"),
    "moonlight_16b_a3b": Source(
        "a test that quotes the file of Moonlight-16B-A3B-Instruct at revision 4e735b07 "
        "(repository not noted); slime"),
    "olmoe_1b_7b": Source(
        "transformers; `piwi3910/Turbine`, `crates/turbine-model/tests/fixtures/` (of the Instruct "
        "release of January 2025)", ("transformers_version", "use_cache")),
    "phi_3_5_moe": Source(
        "transformers; EasyDeL (the first eight factors of both lists, and `mscale`)",
        ("attention_bias", "eos_token_id", "hidden_dropout", "lm_head_bias",
         "rope_scaling.long_factor", "rope_scaling.short_factor", "rope_theta",
         "router_aux_loss_coef", "sliding_window", "torch_dtype", "transformers_version")),
    "qwen1_5_moe_a2_7b": Source(
        "transformers; a test of another program (repository not noted)",
        ("sliding_window", "transformers_version")),
    "qwen3_30b_a3b": Source("LLM-Prof"),
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
                  for key in source.recollected + (source.confirmed or ())
                  if not has(configs[name], key)]
    return found


def sentence(name: str) -> str:
    """For example: MaxText. From recollection: `quantization_config`."""
    source = SOURCES[name]
    listed = ", ".join(f"`{key}`" for key in source.confirmed or source.recollected)
    if source.confirmed is None:
        rest = listed or "none"
    else:
        rest = f"all but {listed}" if listed else "all"
    return f"{source.where}. From recollection: {rest}."
