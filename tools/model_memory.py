"""What the weights and the KV cache of a config.json take, from its keys alone.

Bytes are those of the tensors as a checkpoint of that format stores them, without file headers and
without the layers for multi-token prediction, which afdd does not load. Two parts, as workers hold
them:

    others  embedding, attention, norms, routers, gates of shared experts, head: 2 bytes each
            (bf16), but for the balancing bias of a router, 4, and for the routers of MiniMax-M2, 6:
            they are released in fp32 and held in three parts (model/checkpoint/router_tensors.h).
            A head that is the embedding counts, though no file has it: a worker packs it
    mlps    routed and shared experts and dense MLPs, three matrices [N, K] each, in one format:
            bf16  2 N K
            fp8     N K           + 4 ceil(N / 128) ceil(K / 128)
            int8    N K           + 4 N
            int4    N ceil(K / 2) + 2 N ceil(K / 32)
            and 2 bytes for each bias, where experts have them (gpt-oss)
"""

FORMATS = {
    "bf16": lambda n, k: 2 * n * k,
    "fp8": lambda n, k: n * k + 4 * -(-n // 128) * -(-k // 128),
    "int8": lambda n, k: n * k + 4 * n,
    "int4": lambda n, k: n * -(-k // 2) + 2 * n * -(-k // 32),
}


def is_latent(config: dict) -> bool:
    return "kv_lora_rank" in config


def head_dim(config: dict) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def has_experts(config: dict, layer: int) -> bool:
    listed = config.get("mlp_layer_types")
    if listed is not None:
        return listed[layer] == "sparse"
    first = config.get("first_k_dense_replace")
    if first is None:  # As model/family has it.
        first = 1 if config.get("model_type") in ("glm4_moe", "glm4_moe_lite") else 0
    return (layer >= first
            and layer % config.get("moe_layer_freq", 1) == 0
            and (layer + 1) % config.get("decoder_sparse_step", 1) == 0
            and layer not in config.get("mlp_only_layers", []))


def num_experts(config: dict) -> int:
    keys = ("n_routed_experts", "num_experts", "num_local_experts")
    return next(config[key] for key in keys if key in config)


def kv_bytes_per_token(config: dict) -> int:
    """A token's latent and rotated part, or its keys and values, in bf16, in every layer."""
    width = (config["kv_lora_rank"] + config["qk_rope_head_dim"] if is_latent(config)
             else 2 * config["num_key_value_heads"] * head_dim(config))
    return 2 * width * config["num_hidden_layers"]


def latent_attention(config: dict) -> int:
    """Elements of one layer's attention."""
    hidden, heads, rank = (config["hidden_size"], config["num_attention_heads"],
                           config["kv_lora_rank"])
    nope, rope, value = (config["qk_nope_head_dim"], config["qk_rope_head_dim"],
                         config["v_head_dim"])
    q_rank = config.get("q_lora_rank")
    query = (heads * (nope + rope) * hidden if q_rank is None
             else q_rank * (hidden + 1 + heads * (nope + rope)))
    return (query + (rank + rope) * hidden + rank + heads * (nope + value) * rank
            + hidden * heads * value)


def grouped_attention(config: dict) -> int:
    """Elements of one layer's attention, biases and norms of q and k included."""
    hidden, kind = config["hidden_size"], config["model_type"]
    query = config["num_attention_heads"] * head_dim(config)
    key = config["num_key_value_heads"] * head_dim(config)
    matrices = 2 * hidden * (query + key)
    has_bias = kind == "qwen2_moe" or (kind == "glm4_moe" and config["attention_bias"])
    biases = query + 2 * key if has_bias else 0
    if kind == "phimoe" and config["attention_bias"]:
        biases = query + 2 * key + hidden
    if kind == "gpt_oss":  # Of the output, too, and a sink for each head.
        biases = query + 2 * key + hidden + config["num_attention_heads"]
    if kind in ("olmoe", "minimax_m2"):
        return matrices + biases + query + key
    if kind in ("qwen3_moe", "dots1") or config.get("use_qk_norm"):
        return matrices + biases + 2 * head_dim(config)
    return matrices + biases


def mlp_widths(config: dict, layer: int) -> list[tuple[int, int]]:
    """(how many, their inner width) of the MLPs of a layer."""
    if not has_experts(config, layer):
        return [(1, config["intermediate_size"])]
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    shared = (config.get("n_shared_experts") or 0) * inner \
        + config.get("shared_expert_intermediate_size", 0)
    return [(num_experts(config), inner)] + ([(1, shared)] if shared else [])


def one_mlp_bytes(config: dict, weight_format: str, inner: int) -> int:
    """Of an MLP of this inner width."""
    matrix, hidden = FORMATS[weight_format], config["hidden_size"]
    biases = 2 * inner + hidden if config["model_type"] == "gpt_oss" else 0
    return 2 * matrix(inner, hidden) + matrix(hidden, inner) + 2 * biases


def mlp_bytes(config: dict, weight_format: str) -> int:
    """Of all MLPs in this format."""
    return sum(count * one_mlp_bytes(config, weight_format, inner)
               for layer in range(config["num_hidden_layers"])
               for count, inner in mlp_widths(config, layer))


def balancing_biases(config: dict) -> int:
    """Elements of the routers' balancing biases, which are fp32."""
    has_bias = config.get("topk_method") == "noaux_tc" or config["model_type"] in (
        "glm4_moe", "dots1", "minimax_m2")
    return sum(num_experts(config) for layer in range(config["num_hidden_layers"])
               if has_bias and has_experts(config, layer))


def router_elements(config: dict) -> int:
    """Of the routers' weights."""
    return sum(num_experts(config) * config["hidden_size"]
               for layer in range(config["num_hidden_layers"]) if has_experts(config, layer))


def wide_elements(config: dict) -> int:
    """Of these, those that take three parts."""
    return router_elements(config) if config["model_type"] == "minimax_m2" else 0


def other_bytes(config: dict) -> int:
    """Of all that is no MLP."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    ends = 2 * config["vocab_size"] * hidden + hidden
    attention = latent_attention(config) if is_latent(config) else grouped_attention(config)
    routers = router_elements(config)
    if config.get("shared_expert_intermediate_size"):
        routers += hidden * sum(has_experts(config, layer) for layer in range(layers))
    if config["model_type"] == "gpt_oss":
        routers += sum(num_experts(config) for layer in range(layers) if has_experts(config, layer))
    if config["model_type"] == "phimoe":  # The biases of norms and head.
        ends += hidden + (config["vocab_size"] if config["lm_head_bias"] else 0)
        attention += 2 * hidden
    elements = ends + layers * (attention + 2 * hidden) + routers
    return 2 * elements + 4 * balancing_biases(config) + 4 * wide_elements(config)


def tied_elements(config: dict) -> int:
    """Of a head that is the embedding."""
    is_tied = config.get("tie_word_embeddings", False)
    return config["vocab_size"] * config["hidden_size"] if is_tied else 0


def num_parameters(config: dict) -> int:
    return ((mlp_bytes(config, "bf16") + other_bytes(config)) // 2 - balancing_biases(config)
            - 2 * wide_elements(config) - tied_elements(config))
