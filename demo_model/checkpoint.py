#!/usr/bin/env python3
"""Exports, evaluates and samples the demo model.

    checkpoint.py export   --work DIR/run --text DIR/text   better of weights and their average
    checkpoint.py evaluate --text DIR/text                  bits per byte of the exported weights
    checkpoint.py sample   --prompt TEXT [--tokens N] [--temperature X] [--seed N]

`export` writes model.safetensors beside this file: BF16, Hugging Face names, the router's
balancing biases F32. `evaluate` and `sample` read that file; activations are then fp32.
"""
import argparse
import pathlib
import sys

import numpy as np
import torch

import bpe
from model import Model, load_config
from train import bits_per_byte

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "golden"))
import safetensors_np  # noqa: E402  (found beside the NumPy decoder)

WINDOW = 1024
Arrays = dict[str, np.ndarray]


def to_hugging_face(state: dict[str, torch.Tensor]) -> Arrays:
    """Tensors of Model.state_dict() under Hugging Face names, stacked experts taken apart."""
    arrays: Arrays = {}
    for name, tensor in state.items():
        value = tensor.detach().float().cpu().numpy()
        prefix, _, last = name.rpartition(".")
        if last == "gate_up":
            for expert, both in enumerate(value):
                gate, up = np.split(both, 2)
                arrays[f"model.{prefix}.experts.{expert}.gate_proj.weight"] = gate
                arrays[f"model.{prefix}.experts.{expert}.up_proj.weight"] = up
        elif last == "down":
            for expert, down in enumerate(value):
                arrays[f"model.{prefix}.experts.{expert}.down_proj.weight"] = down
        elif last == "bias":
            arrays[f"model.{prefix}.gate.e_score_correction_bias"] = value
        elif name == "lm_head":
            arrays["lm_head.weight"] = value
        else:
            arrays[f"model.{name}.weight"] = value
    return arrays


def from_hugging_face(arrays: Arrays, model: Model) -> None:
    """Loads the arrays into `model`; every tensor of the model must be there."""
    state = {}
    for name, old in model.state_dict().items():
        prefix, _, last = name.rpartition(".")
        experts = range(model.config["n_routed_experts"])
        stem = f"model.{prefix}.experts"
        if last == "gate_up":
            value = np.stack([np.concatenate((arrays[f"{stem}.{e}.gate_proj.weight"],
                                              arrays[f"{stem}.{e}.up_proj.weight"]))
                              for e in experts])
        elif last == "down":
            value = np.stack([arrays[f"{stem}.{e}.down_proj.weight"] for e in experts])
        elif last == "bias":
            value = arrays[f"model.{prefix}.gate.e_score_correction_bias"]
        else:
            value = arrays["lm_head.weight" if name == "lm_head" else f"model.{name}.weight"]
        state[name] = torch.from_numpy(np.array(value, dtype=np.float32)).view_as(old)
    model.load_state_dict(state)


def write_weights(arrays: Arrays, path: pathlib.Path) -> None:
    tensors = {name: ("F32" if name.endswith("correction_bias") else "BF16", value)
               for name, value in arrays.items()}
    safetensors_np.write(path, tensors)


def exported_model() -> Model:
    """The model with the weights of model.safetensors."""
    model = Model(load_config(HERE / "config.json"))
    from_hugging_face(safetensors_np.read(HERE / "model.safetensors"), model)
    return model.eval()


def export(work: pathlib.Path, text: pathlib.Path) -> None:
    """Rounds both sets of weights to bf16, measures both, keeps the better."""
    checkpoint = torch.load(work / "checkpoint.pt", map_location="cpu")
    best = float("inf")
    for kind in ("model", "average"):
        arrays = to_hugging_face(checkpoint[kind])
        path = work / f"{kind}.safetensors"
        write_weights(arrays, path)
        model = Model(load_config(HERE / "config.json"))
        from_hugging_face(safetensors_np.read(path), model)
        bits, tokens, size = measure(model, text)
        print(f"{kind}: step {checkpoint['step']} tokens trained {checkpoint['tokens']} "
              f"minutes {checkpoint['seconds'] / 60:.1f} valid bits per byte {bits:.4f} "
              f"({tokens} tokens, {size} bytes)")
        if bits < best:
            best = bits
            (HERE / "model.safetensors").write_bytes(path.read_bytes())


def measure(model: Model, text: pathlib.Path) -> tuple[float, int, int]:
    """Bits per byte, tokens and bytes of the whole validation text."""
    documents = (text / "valid.txt").read_text("utf-8").split("\f")
    tokenizer = bpe.Tokenizer(HERE / "tokenizer.json")
    return bits_per_byte(model, documents, tokenizer, WINDOW, torch.float32)


@torch.no_grad()
def sample(prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """The continuation of the prompt; temperature 0 takes the most likely token."""
    model, tokenizer = exported_model(), bpe.Tokenizer(HERE / "tokenizer.json")
    generator = torch.Generator().manual_seed(seed)
    ids = [tokenizer.bos, *tokenizer.encode(prompt)]
    begin = len(ids)
    while len(ids) < min(begin + tokens, WINDOW):
        logits = model(torch.tensor([ids]))[0, -1]
        if temperature == 0:
            ids.append(int(logits.argmax()))
        else:
            probabilities = torch.softmax(logits / temperature, 0)
            ids.append(int(torch.multinomial(probabilities, 1, generator=generator)))
        if ids[-1] == tokenizer.eos:
            break
    return tokenizer.decode(ids[begin:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("export", "evaluate", "sample"))
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.action == "export":
        export(arguments.work, arguments.text)
    elif arguments.action == "evaluate":
        bits, tokens, size = measure(exported_model(), arguments.text)
        print(f"bits per byte {bits:.4f} over {tokens} tokens, {size} bytes")
    else:
        print(arguments.prompt + sample(arguments.prompt, arguments.tokens,
                                        arguments.temperature, arguments.seed))


if __name__ == "__main__":
    main()
