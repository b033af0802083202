"""The variants of make_checkpoint.py with grouped-query attention, and their tensors.

Two shapes of each family; those called odd have three heads, widths that are no multiple of 64, and
what the family has beside the common case.
"""
import grouped_np

Shapes = dict[str, tuple[int, ...]]

COMMON = {
    "vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "num_experts_per_tok": 4, "hidden_act": "silu",
    "max_position_embeddings": 1024, "rope_theta": 10000, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}

QWEN3 = {**COMMON, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
         "head_dim": 32, "intermediate_size": 256, "moe_intermediate_size": 64, "num_experts": 16,
         "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
         "attention_bias": False, "use_sliding_window": False, "sliding_window": None,
         "rope_theta": 1000000}

QWEN2 = {**QWEN3, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
         "shared_expert_intermediate_size": 96, "norm_topk_prob": False, "sliding_window": 32768,
         "head_dim": None, "num_attention_heads": 4}

MIXTRAL = {**COMMON, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
           "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2,
           "sliding_window": None, "rms_norm_eps": 1e-5, "rope_theta": 1000000}

OLMOE = {**COMMON, "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe",
         "num_key_value_heads": 8, "intermediate_size": 64, "num_experts": 16,
         "norm_topk_prob": False, "clip_qkv": None, "attention_bias": False, "rms_norm_eps": 1e-5}

GLM4 = {**COMMON, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe",
        "head_dim": 32, "partial_rotary_factor": 0.5, "attention_bias": True, "use_qk_norm": True,
        "intermediate_size": 256, "moe_intermediate_size": 64, "n_routed_experts": 16,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "rms_norm_eps": 1e-5}

DEEPSEEK1 = {**COMMON, "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek",
             "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 256,
             "moe_intermediate_size": 64, "n_routed_experts": 16, "n_shared_experts": 2,
             "norm_topk_prob": False, "scoring_func": "softmax", "first_k_dense_replace": 1,
             "moe_layer_freq": 1, "attention_bias": False}

DOTS1 = {**DEEPSEEK1, "architectures": ["Dots1ForCausalLM"], "model_type": "dots1",
         "head_dim": 32, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
         "scoring_func": "noaux_tc", "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-5,
         "sliding_window": None}

MINIMAX = {**COMMON, "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2",
           "head_dim": 32, "rotary_dim": 16, "intermediate_size": 64, "num_local_experts": 16,
           "scoring_func": "sigmoid", "use_qk_norm": True, "qk_norm_type": "per_layer",
           "use_routing_bias": True, "shared_intermediate_size": 0, "rope_theta": 5000000}

# As released, experts in mxfp4; the odd one with them expanded.
GPT_OSS = {**COMMON, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
           "head_dim": 32, "attention_bias": True, "intermediate_size": 96, "num_local_experts": 16,
           "sliding_window": 21, "swiglu_limit": 7.0, "rms_norm_eps": 1e-5, "rope_theta": 150000,
           "layer_types": ["sliding_attention", "full_attention"] * 2,
           "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                            "beta_slow": 1.0, "original_max_position_embeddings": 64,
                            "truncate": False}}

# A context beyond the one it was trained with, so the long factors.
PHIMOE = {**COMMON, "architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe",
          "attention_bias": True, "lm_head_bias": True, "intermediate_size": 96,
          "num_local_experts": 16, "num_experts_per_tok": 2, "router_jitter_noise": 0.01,
          "input_jitter_noise": 0.01, "sliding_window": 1024, "rms_norm_eps": 1e-5,
          "original_max_position_embeddings": 64,
          "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 64,
                           "short_factor": [1.0, 1.02, 1.05, 1.1, 1.3, 1.8, 2.0, 2.1],
                           "long_factor": [1.02, 1.05, 1.1, 1.4, 3.9, 10.7, 19.9, 44.0],
                           "short_mscale": 1.1, "long_mscale": 1.243163121016122}}

VARIANTS: dict[str, dict] = {
    "phimoe": PHIMOE,
    # The short factors; rivals that are often near, and in a window.
    "phimoe_odd": {**PHIMOE, "hidden_size": 90, "num_attention_heads": 3, "num_key_value_heads": 3,
                   "intermediate_size": 70, "num_local_experts": 5, "router_jitter_noise": 0.25,
                   "sliding_window": 70, "lm_head_bias": False,
                   "original_max_position_embeddings": 4096,
                   "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 4096,
                                    "short_factor": [1 + 0.05 * i for i in range(15)],
                                    "long_factor": [1.5 ** i for i in range(15)],
                                    "short_mscale": 1.1, "long_mscale": 1.2}},
    "phimoe_gptq": {**PHIMOE, "form": {"method": "gptq", "group": 32, "symmetric": True,
                                       "scales": "F16"}},
    "deepseek_v1": DEEPSEEK1,
    "deepseek_v1_odd": {**DEEPSEEK1, "hidden_size": 90, "num_attention_heads": 3,
                        "num_key_value_heads": 3, "intermediate_size": 130,
                        "moe_intermediate_size": 44, "n_routed_experts": 9},
    "dots1": DOTS1,
    "dots1_odd": {**DOTS1, "hidden_size": 90, "num_attention_heads": 3, "num_key_value_heads": 3,
                  "head_dim": 20, "intermediate_size": 130, "moe_intermediate_size": 44,
                  "n_routed_experts": 9},
    "minimax_m2": MINIMAX,
    "minimax_m2_odd": {**MINIMAX, "hidden_size": 90, "num_attention_heads": 3,
                       "num_key_value_heads": 3, "head_dim": 20, "rotary_dim": 10,
                       "intermediate_size": 44, "num_local_experts": 7,
                       "num_experts_per_tok": 3},
    # As its successors are released; three parts of 14 experts share panels of the packed gate.
    "minimax_m2_f32_router": {**MINIMAX, "num_local_experts": 14, "router_dtype": "F32"},
    "gpt_oss": {**GPT_OSS, "form": {"method": "mxfp4_fused"}},
    "gpt_oss_expanded": {**GPT_OSS, "form": {"method": "mxfp4_fused_expanded"}},
    "gpt_oss_odd": {**GPT_OSS, "hidden_size": 90, "num_attention_heads": 3,
                    "num_key_value_heads": 1, "head_dim": 20, "intermediate_size": 70,
                    "num_local_experts": 7, "num_experts_per_tok": 3, "sliding_window": 70},
    "qwen2_moe": QWEN2,
    "qwen2_moe_odd": {**QWEN2, "hidden_size": 102, "num_attention_heads": 3,
                      "num_key_value_heads": 3, "intermediate_size": 150,
                      "moe_intermediate_size": 40, "shared_expert_intermediate_size": 130,
                      "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True,
                      "mlp_only_layers": [0]},
    "qwen3_moe": {**QWEN3, "tie_word_embeddings": True},
    # The text model of a model of text and images, in shards.
    "qwen3_moe_wrapped": {**QWEN3, "num_shards": 3,
                          "layout": {"wrap": "language_model.", "rope_parameters": True}},
    # Dense layers by both rules; weights of the chosen not normalised.
    "qwen3_moe_odd": {**QWEN3, "hidden_size": 100, "num_hidden_layers": 5, "num_attention_heads": 3,
                      "num_key_value_heads": 1, "head_dim": 20, "intermediate_size": 150,
                      "moe_intermediate_size": 44, "num_experts": 7, "num_experts_per_tok": 3,
                      "norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    "mixtral": MIXTRAL,
    "mixtral_odd": {**MIXTRAL, "hidden_size": 90, "num_attention_heads": 3,
                    "num_key_value_heads": 3, "intermediate_size": 70, "num_local_experts": 5},
    # As newer libraries write them.
    "mixtral_newer": {**MIXTRAL, "num_shards": 2,
                      "layout": {"wrap": "model.language_model.", "fused_experts": True,
                                 "rope_parameters": True}},
    # Windows of positions, longer and shorter than a block of the cache; in every second layer.
    "mixtral_window": {**MIXTRAL, "sliding_window": 70},
    "mixtral_window_odd": {**MIXTRAL, "hidden_size": 90, "num_attention_heads": 3,
                           "num_key_value_heads": 3, "intermediate_size": 70,
                           "num_local_experts": 5, "sliding_window": 21,
                           "layer_types": ["sliding_attention", "full_attention"] * 2},
    # As other programs quantise (foreign_np.py): zero points; a scale a row; a scale a matrix.
    "mixtral_awq": {**MIXTRAL, "num_local_experts": 6,
                    "form": {"method": "awq", "group": 32, "symmetric": False, "scales": "F16"}},
    # In the order of their importance, which one group for each row leaves as it is.
    "qwen3_moe_gptq": {**QWEN3, "form": {"method": "gptq", "group": -1, "symmetric": True,
                                         "order": True, "scales": "BF16"}},
    # Groups of 128 with zero points, as most files have them: three of an expert's, two of a row.
    "qwen3_moe_gptq_zero": {**QWEN3, "hidden_size": 256, "intermediate_size": 384,
                            "moe_intermediate_size": 384, "num_experts": 6,
                            "form": {"method": "gptq", "group": 128, "symmetric": False,
                                     "scales": "F16"}},
    "mixtral_awq_128": {**MIXTRAL, "hidden_size": 256, "intermediate_size": 384,
                        "num_local_experts": 4,
                        "form": {"method": "awq", "group": 128, "symmetric": False,
                                 "scales": "F16"}},
    "qwen3_moe_w8a8": {**QWEN3, "form": {"method": "int8", "scales": "BF16"}},
    "qwen3_moe_w8a8_experts": {**QWEN3, "form": {"method": "int8", "scales": "BF16",
                                                 "ignore": ["lm_head", "re:.*self_attn.*"]}},
    "qwen3_moe_fp8": {**QWEN3, "form": {"method": "fp8", "scales": "tensor"}},
    "glm4_moe": GLM4,
    # 4.5-Air: no norms of q and k.
    "glm4_moe_odd": {**GLM4, "hidden_size": 90, "num_attention_heads": 3, "num_key_value_heads": 1,
                     "head_dim": 20, "use_qk_norm": False, "intermediate_size": 130,
                     "moe_intermediate_size": 44, "n_routed_experts": 9, "n_group": 3,
                     "topk_group": 2, "routed_scaling_factor": 1.0},
    "olmoe": OLMOE,
    "olmoe_odd": {**OLMOE, "hidden_size": 72, "num_attention_heads": 3, "num_key_value_heads": 3,
                  "intermediate_size": 50, "num_experts": 9, "clip_qkv": 1.5},
}


def mlp_shapes(prefix: str, parts: tuple[str, str, str], hidden: int, inner: int) -> Shapes:
    gate, up, down = parts
    return {f"{prefix}.{gate}.weight": (inner, hidden), f"{prefix}.{up}.weight": (inner, hidden),
            f"{prefix}.{down}.weight": (hidden, inner)}


def attention_shapes(prefix: str, config: dict) -> Shapes:
    family, dim, hidden = (grouped_np.family_of(config), grouped_np.head_dim(config),
                           config["hidden_size"])
    query, key = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: Shapes = {}
    for part, width in (("q", query), ("k", key), ("v", key)):
        shapes[f"{prefix}.{part}_proj.weight"] = (width, hidden)
        if family.has_bias:
            shapes[f"{prefix}.{part}_proj.bias"] = (width,)
        if part != "v" and family.qk_norm != "none":
            shapes[f"{prefix}.{part}_norm.weight"] = (dim if family.qk_norm == "head" else width,)
    shapes[f"{prefix}.o_proj.weight"] = (hidden, query)
    if family.has_o_bias:
        shapes[f"{prefix}.o_proj.bias"] = (hidden,)
    if family.has_clamp:
        shapes[f"{prefix}.sinks"] = (config["num_attention_heads"],)
    return shapes


def fused_shapes(prefix: str, config: dict) -> Shapes:
    """Router and experts of gpt-oss: inputs in rows, outputs in columns."""
    hidden, inner, count = (config["hidden_size"], config["intermediate_size"],
                            config["num_local_experts"])
    return {f"{prefix}.router.weight": (count, hidden), f"{prefix}.router.bias": (count,),
            f"{prefix}.experts.gate_up_proj": (count, hidden, 2 * inner),
            f"{prefix}.experts.gate_up_proj_bias": (count, 2 * inner),
            f"{prefix}.experts.down_proj": (count, inner, hidden),
            f"{prefix}.experts.down_proj_bias": (count, hidden)}


def ffn_shapes(prefix: str, config: dict, layer_idx: int) -> Shapes:
    """Of the layer `prefix`."""
    family, hidden = grouped_np.family_of(config), config["hidden_size"]
    if not grouped_np.is_moe(config, layer_idx):
        return mlp_shapes(f"{prefix}.mlp", family.parts, hidden, config["intermediate_size"])
    moe = f"{prefix}.{family.ffn}"
    if family.has_clamp:
        return fused_shapes(moe, config)
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    shapes: Shapes = {f"{moe}.gate.weight": (config[family.num_experts], hidden)}
    if config["architectures"][0] != "DeepseekForCausalLM" and family.has_deepseek_router:
        shapes[f"{moe}.{family.bias_stands}"] = (config[family.num_experts],)
    if "n_shared_experts" in config:
        shapes.update(mlp_shapes(f"{moe}.shared_experts", family.parts, hidden,
                                 inner * config["n_shared_experts"]))
    for expert in range(config[family.num_experts]):
        shapes.update(mlp_shapes(f"{moe}.experts.{expert}", family.parts, hidden, inner))
    if "shared_expert_intermediate_size" in config:
        shapes[f"{moe}.shared_expert_gate.weight"] = (1, hidden)
        shapes.update(mlp_shapes(f"{moe}.shared_expert", family.parts, hidden,
                                 config["shared_expert_intermediate_size"]))
    return shapes
