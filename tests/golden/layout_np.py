"""How a checkpoint lays out its tensors and keys: made for make_checkpoint.py, and undone again.

A "layout" is what its variants ask for:

    wrap             the text model of a model of text and images, whose names begin with this:
                     "language_model." or "model.language_model."; its keys are in text_config
    fused_experts    the experts of a layer in two tensors, [E, 2I, H] and [E, H, I], and a layer's
                     router and experts in "mlp", as newer libraries have them
    rope_parameters  instead of rope_theta and rope_scaling
"""
import json
import pathlib
import re

import numpy as np

Array = np.ndarray
Tensors = dict[str, tuple[str, Array]]

# Keys of the whole model in files that have a text_config.
OF_ALL = ("architectures", "model_type", "quantization_config", "torch_dtype",
          "tie_word_embeddings", "bos_token_id", "eos_token_id")
# Parts of an expert, by either naming.
GATE, UP, DOWN = ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")


def laid_out_config(config: dict, layout: dict) -> dict:
    config = dict(config)
    if layout.get("rope_parameters"):
        scaling = config.pop("rope_scaling", None) or {"rope_type": "default"}
        config["rope_parameters"] = {**scaling, "rope_theta": config.pop("rope_theta")}
    if not layout.get("wrap"):
        return config
    own = {key: config.pop(key) for key in OF_ALL if key in config}
    text = {**config, "architectures": own.pop("architectures"),
            "model_type": own.pop("model_type")}
    return {"architectures": ["SomeForConditionalGeneration"], "model_type": "some_vl", **own,
            "text_config": text, "vision_config": {"hidden_size": 48, "num_hidden_layers": 2}}


def with_fused_experts(tensors: Tensors) -> Tensors:
    out: Tensors = {}
    experts: dict[str, dict[int, dict[str, tuple[str, Array]]]] = {}
    for name, tensor in tensors.items():
        name = name.replace(".block_sparse_moe.", ".mlp.")
        found = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name)
        if found is None:
            out[name] = tensor
            continue
        stem, expert, part = found.groups()
        experts.setdefault(stem, {}).setdefault(int(expert), {})[part] = tensor
    for stem, of_layer in experts.items():
        rows = {kind[0]: [next(parts[part] for part in kind if part in parts)
                          for _, parts in sorted(of_layer.items())] for kind in (GATE, UP, DOWN)}
        dtype = rows["gate_proj"][0][0]
        out[f"{stem}.gate_up_proj"] = (dtype, np.stack(
            [np.concatenate((gate, up))
             for (_, gate), (_, up) in zip(rows["gate_proj"], rows["up_proj"])]))
        out[f"{stem}.down_proj"] = (dtype, np.stack([down for _, down in rows["down_proj"]]))
    return out


def laid_out_tensors(tensors: Tensors, layout: dict) -> Tensors:
    if layout.get("fused_experts"):
        tensors = with_fused_experts(tensors)
    wrap = layout.get("wrap")
    if not wrap:
        return tensors
    towers = ("vision_tower.", "multi_modal_projector.")
    if wrap == "language_model.":
        named = {wrap + name: tensor for name, tensor in tensors.items()}
    else:
        # The head stays outside.
        named = {wrap + name.removeprefix("model.") if name.startswith("model.") else name: tensor
                 for name, tensor in tensors.items()}
        towers = ("model.visual.", "model.multi_modal_projector.")
    # Between the names of the text model, with layers of their own.
    for tower in towers:
        named[f"{tower}layers.0.self_attn.q_proj.weight"] = (
            "F32", np.full((48, 48), 0.5, np.float32))
    return named


def read_config(folder: pathlib.Path) -> dict:
    """config.json of the text model."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text("utf-8"))
    if "num_hidden_layers" in config or "text_config" not in config:
        return config
    others = {key: config[key] for key in OF_ALL if key in config}
    return {**others, **config["text_config"]}


def plain_tensors(tensors: dict[str, Array]) -> dict[str, Array]:
    """Names as a text model alone has them; each expert's matrices in tensors of their own."""
    if "language_model.model.norm.weight" in tensors:
        prefix = "language_model."
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()
                   if name.startswith(prefix)}
    elif "model.language_model.norm.weight" in tensors:
        prefix = "model.language_model."
        tensors = {"model." + name.removeprefix(prefix) if name.startswith(prefix) else name: value
                   for name, value in tensors.items()
                   if name.startswith((prefix, "lm_head."))}
    # gpt-oss, whose experts have biases, stores them in another way (foreign_np.py).
    fused = [name for name in tensors if name.endswith("experts.gate_up_proj")
             and name + "_bias" not in tensors]
    out = dict(tensors)
    for name in fused:
        stem = name.removesuffix(".gate_up_proj")
        gate_up, down = out.pop(name), out.pop(f"{stem}.down_proj")
        for expert, rows in enumerate(gate_up):
            half = len(rows) // 2
            out[f"{stem}.{expert}.gate_proj.weight"] = rows[:half]
            out[f"{stem}.{expert}.up_proj.weight"] = rows[half:]
            out[f"{stem}.{expert}.down_proj.weight"] = down[expert]
    return out
