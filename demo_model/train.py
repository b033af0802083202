#!/usr/bin/env python3
"""Trains the demo model within a wall-clock budget; stop and start it at will.

    train.py --text DIR/text --work DIR/run --minutes 90

Reads NAME.{train,valid}.txt as written by fetch_text.py and tokenizer.json and config.json beside
this file. DIR/run/checkpoint.pt holds everything needed to resume; DIR/run/log.txt the figures.
Matrices are trained with Muon, embeddings, head, router and norms with AdamW. The learning rate
is constant after warm-up and falls to zero over the last DECAY_SHARE of the budget.
"""
import argparse
import math
import multiprocessing
import os
import pathlib
import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import bpe
from model import Model, Moe, load_config

HERE = pathlib.Path(__file__).resolve().parent
# Share of the training rows by source. Prose that reads well is worth more than its size.
MIXTURE = {"austen": 0.38, "king_james": 0.22, "world_english": 0.22, "moby_dick": 0.13,
           "devil": 0.04, "dhammapada": 0.01}
STEP_TOKENS = 8192
MICRO_TOKENS = 2048
MUON_RATE, MUON_DECAY, ADAM_RATE = 0.02, 0.1, 3e-3
WARMUP_STEPS, DECAY_SHARE = 100, 0.35
BIAS_SPEED = 1e-3
EMA_HORIZON = 400
SAVE_SECONDS = 240


class Source:
    """One source's tokens as a stream bos doc eos bos doc eos ..."""

    def __init__(self, path: pathlib.Path, tokenizer: bpe.Tokenizer) -> None:
        ids: list[int] = []
        for document in path.read_text("utf-8").split("\f"):
            ids += [tokenizer.bos, *tokenizer.encode(document), tokenizer.eos]
        self.ids = np.array(ids, dtype=np.int64)
        ends_line = np.array(["\u010a" in tokenizer.tokens[i] for i in range(len(tokenizer.ids))])
        starts = ends_line[self.ids] | (self.ids == tokenizer.bos)
        self.starts = np.flatnonzero(starts) + 1
        self.bos = tokenizer.bos

    def row(self, length: int, random: np.random.Generator) -> np.ndarray:
        """bos and then `length` tokens from a random line start."""
        starts = self.starts[:np.searchsorted(self.starts, len(self.ids) - length)]
        begin = random.choice(starts)
        return np.concatenate(([self.bos], self.ids[begin:begin + length]))


def sample_batch(sources: dict[str, Source], progress: float,
                 random: np.random.Generator) -> Tensor:
    """Rows [B, T + 1] of about STEP_TOKENS tokens; long rows become common as training goes on."""
    long_share = 0.1 if progress < 0.3 else 0.2
    length = random.choice([256, 512, 1024], p=[1 - 2 * long_share, long_share, long_share])
    names = random.choice(list(MIXTURE), size=STEP_TOKENS // length, p=list(MIXTURE.values()))
    return torch.from_numpy(np.stack([sources[name].row(length, random) for name in names]))


def take_gradients(model: Model, rows: Tensor, queue: "Queue", drop: float) -> float:
    """Adds to the model's gradients those of the pieces of `rows` that this process gets.

    Pieces are handed out one by one, so that a process whose core is busy elsewhere takes fewer.
    Returns the share of the mean loss in nats.
    """
    pieces = rows.split(max(1, MICRO_TOKENS // (rows.shape[1] - 1)))
    loss_sum = 0.0
    while (index := queue.next()) < len(pieces):
        piece = pieces[index]
        logits = model(piece[:, :-1], torch.bfloat16, drop)
        loss = functional.cross_entropy(logits.flatten(0, 1), piece[:, 1:].reshape(-1))
        loss = loss * (len(piece) / len(rows))
        loss.backward()
        loss_sum += float(loss.detach())
    return loss_sum


class Queue:
    """A counter shared by the processes of one step."""

    def __init__(self, context) -> None:
        self.counter = context.Value("i", 0)

    def next(self) -> int:
        with self.counter.get_lock():
            self.counter.value += 1
            return self.counter.value - 1

    def restart(self) -> None:
        self.counter.value = 0


class Helper:
    """A second process that works on the same weights, in shared memory.

    Two processes of one thread each outrun one process of two threads here: they meet once per
    step instead of once per operation, which matters when other programs use the cores too.
    """

    def __init__(self, model: Model, drop: float) -> None:
        context = multiprocessing.get_context("fork")
        self.model, self.drop, self.queue = model, drop, Queue(context)
        self.layers = moe_layers(model)
        self.grads = [torch.zeros_like(p).share_memory_() for p in model.parameters()]
        self.loads = torch.zeros(len(self.layers), model.config["n_routed_experts"])
        self.loads.share_memory_()
        self.pipe, self.child_pipe = context.Pipe()
        self.process = context.Process(target=self.serve, daemon=True)
        self.process.start()
        self.child_pipe.close()

    def serve(self) -> None:
        """The child's loop: a batch in, gradients and expert loads out; ends with the parent."""
        self.pipe.close()
        torch.set_num_threads(1)
        torch.manual_seed(os.getpid())
        for layer in self.layers:
            layer.load = torch.zeros_like(layer.load)
        while True:
            try:
                rows = torch.from_numpy(self.child_pipe.recv())
            except EOFError:
                return
            self.model.zero_grad(set_to_none=True)
            loss = take_gradients(self.model, rows, self.queue, self.drop)
            for shared, parameter in zip(self.grads, self.model.parameters()):
                shared.zero_() if parameter.grad is None else shared.copy_(parameter.grad)
            for shared, layer in zip(self.loads, self.layers):
                shared.copy_(layer.load)
                layer.load.zero_()
            self.child_pipe.send(loss)

    def start(self, rows: Tensor) -> None:
        self.queue.restart()
        self.pipe.send(rows.numpy())

    def finish(self) -> float:
        """Waits, adds the child's gradients and loads to this process' model, returns its loss."""
        loss = self.pipe.recv()
        for shared, parameter in zip(self.grads, self.model.parameters()):
            if parameter.grad is None:
                parameter.grad = shared.clone()
            else:
                parameter.grad += shared
        for shared, layer in zip(self.loads, self.layers):
            layer.load += shared
        return loss


def moe_layers(model: Model) -> list[Moe]:
    return [layer.mlp for layer in model.layers if isinstance(layer.mlp, Moe)]


def orthogonalised(update: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition of each matrix [.., R, C]; five quintic
    Newton-Schulz steps with Muon's published coefficients."""
    x = update.bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.transpose(-2, -1)
    x = x / (x.float().flatten(-2).norm(dim=-1)[..., None, None] + 1e-7).to(x.dtype)
    x = x.contiguous()
    for _ in range(5):
        gram = x @ x.transpose(-2, -1)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return (x if wide else x.transpose(-2, -1)).float()


class Muon:
    """Momentum, orthogonalised per matrix; parameters of one shape are treated in one batch."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.groups: dict[torch.Size, list[Tensor]] = {}
        for parameter in parameters:
            self.groups.setdefault(parameter.shape, []).append(parameter)
        self.momentum = {shape: torch.zeros(len(group), *shape, device=group[0].device)
                         for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, rate: float, momentum: float = 0.95) -> None:
        for shape, group in self.groups.items():
            grad = torch.stack([p.grad for p in group])
            self.momentum[shape].lerp_(grad, 1 - momentum)
            update = orthogonalised(grad.lerp_(self.momentum[shape], momentum))
            scale = max(1.0, shape[-2] / shape[-1]) ** 0.5
            for parameter, change in zip(group, update):
                parameter.mul_(1 - rate * MUON_DECAY).add_(change, alpha=-rate * scale)


def rate_factor(step: int, progress: float) -> float:
    """Warm-up, plateau, linear decay."""
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.0, (1 - progress) / DECAY_SHARE))


@torch.no_grad()
def bits_per_byte(model: Model, documents: list[str], tokenizer: bpe.Tokenizer, window: int,
                  dtype: torch.dtype) -> tuple[float, int, int]:
    """Bits per byte, tokens and bytes of `documents`.

    Every document is cut into pieces of `window` - 1 tokens; each is predicted after a bos, with
    no other context. The end of a document is not counted.
    """
    model.eval()
    pieces = []
    for document in documents:
        ids = tokenizer.encode(document)
        pieces += [ids[i:i + window - 1] for i in range(0, len(ids), window - 1)]
    pieces.sort(key=len)
    nats, tokens = 0.0, 0
    for begin in range(0, len(pieces), 16):
        batch = pieces[begin:begin + 16]
        width = max(map(len, batch))
        ids = torch.full((len(batch), width + 1), tokenizer.bos)
        target = torch.full((len(batch), width), -100)
        for row, piece in enumerate(batch):
            ids[row, 1:len(piece) + 1] = torch.tensor(piece)
            target[row, :len(piece)] = torch.tensor(piece)
        device = model.norm.device
        logits = model(ids[:, :-1].to(device), dtype).flatten(0, 1)
        nats += float(functional.cross_entropy(logits, target.to(device).flatten(),
                                               reduction="sum"))
        tokens += int((target >= 0).sum())
    model.train()
    size = sum(len(document.encode()) for document in documents)
    return nats / math.log(2) / size, tokens, size


class Trainer:
    """Model, optimisers, moving average and data; everything that a checkpoint holds."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = bpe.Tokenizer(HERE / "tokenizer.json")
        self.sources = {name: Source(arguments.text / f"{name}.train.txt", self.tokenizer)
                        for name in MIXTURE}
        valid = (arguments.text / "valid.txt").read_text("utf-8").split("\f")
        self.valid = [document[:4000] for document in valid[::9]]
        torch.manual_seed(arguments.seed)
        self.model = Model(load_config(HERE / "config.json")).to(self.device)
        self.average = Model(self.model.config).to(self.device)
        self.average.load_state_dict(self.model.state_dict())
        self.split_parameters()
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.load()
        self.helper = None
        self.queue = Queue(multiprocessing)
        if self.device == "cpu" and arguments.processes == 2:
            self.model.share_memory()
            self.model.train()
            self.helper = Helper(self.model, arguments.drop)
            self.queue = self.helper.queue

    def split_parameters(self) -> None:
        """Muon takes the matrices inside the blocks, AdamW all else."""
        muon, adam = [], []
        for name, parameter in self.model.named_parameters():
            is_matrix = parameter.dim() >= 2 and name.startswith("layers.")
            (muon if is_matrix and not name.endswith("mlp.gate") else adam).append(parameter)
        self.muon = Muon(muon)
        self.adam = torch.optim.AdamW(adam, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.02)

    def load(self) -> None:
        path = self.arguments.work / "checkpoint.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.muon.momentum = state["muon"]
        self.adam.load_state_dict(state["adam"])
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def save(self) -> None:
        path = self.arguments.work / "checkpoint.pt"
        state = {"model": self.model.state_dict(), "average": self.average.state_dict(),
                 "muon": self.muon.momentum, "adam": self.adam.state_dict(), "step": self.step,
                 "tokens": self.tokens, "seconds": self.seconds}
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def progress(self) -> float:
        return self.seconds / (60 * self.arguments.minutes)

    def train_step(self, random: np.random.Generator) -> tuple[float, float]:
        """One update; returns the loss in nats per token and the worst layer's imbalance."""
        rows = sample_batch(self.sources, self.progress(), random).to(self.device)
        self.model.zero_grad(set_to_none=True)
        self.helper.start(rows) if self.helper else self.queue.restart()
        loss = take_gradients(self.model, rows, self.queue, self.arguments.drop)
        loss += self.helper.finish() if self.helper else 0.0
        torch.nn.utils.clip_grad_norm_(self.adam.param_groups[0]["params"], 1.0)
        factor = rate_factor(self.step, self.progress())
        self.muon.step(MUON_RATE * factor)
        self.adam.param_groups[0]["lr"] = ADAM_RATE * factor
        self.adam.step()
        speed = BIAS_SPEED * min(1.0, factor * 2)
        imbalance = max(layer.update_bias(speed) for layer in moe_layers(self.model))
        self.update_average()
        self.step += 1
        self.tokens += rows[:, 1:].numel()
        return loss, imbalance

    @torch.no_grad()
    def update_average(self) -> None:
        """Exponential moving average of the weights; the balancing biases are copied."""
        weight = 1 / min(EMA_HORIZON, 10 + self.step / 4)
        for mean, now in zip(self.average.parameters(), self.model.parameters()):
            mean.lerp_(now, weight)
        for mean, now in zip(self.average.buffers(), self.model.buffers()):
            mean.copy_(now)

    def report(self, loss: float, imbalance: float, speed: float) -> None:
        now, _, _ = bits_per_byte(self.model, self.valid, self.tokenizer, 512, torch.bfloat16)
        mean, _, _ = bits_per_byte(self.average, self.valid, self.tokenizer, 512, torch.bfloat16)
        line = (f"minute {self.seconds / 60:.1f} step {self.step} tokens {self.tokens} "
                f"loss {loss:.4f} valid_bpb {now:.4f} average_bpb {mean:.4f} "
                f"imbalance {imbalance:.2f} tokens/s {speed:.0f}")
        print(line, flush=True)
        with (self.arguments.work / "log.txt").open("a") as log:
            log.write(line + "\n")

    def run(self) -> None:
        """Trains until the budget is spent; evaluation and saving count as training time."""
        random = np.random.default_rng([self.arguments.seed, self.step])
        last, mean_loss, since, tokens_then = time.monotonic(), 0.0, 0.0, self.tokens
        self.model.train()
        while self.progress() < 1:
            loss, imbalance = self.train_step(random)
            mean_loss = loss if mean_loss == 0 else 0.98 * mean_loss + 0.02 * loss
            now = time.monotonic()
            self.seconds, since, last = self.seconds + now - last, since + now - last, now
            if self.step % 50 == 0:
                print(f"step {self.step} loss {mean_loss:.4f} imbalance {imbalance:.2f} "
                      f"tokens/s {(self.tokens - tokens_then) / max(since, 1e-9):.0f}", flush=True)
            if since > SAVE_SECONDS or self.progress() >= 1:
                self.report(mean_loss, imbalance, (self.tokens - tokens_then) / since)
                self.save()
                since, tokens_then = 0.0, self.tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    parser.add_argument("--drop", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    Trainer(arguments).run()


if __name__ == "__main__":
    main()
