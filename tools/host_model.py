#!/usr/bin/env python3
"""How an instance scales with hosts and links, on paper: the table of docs/hosts.md.

    host_model.py [--check] [--help]

Nothing here is measured. A host computes as fast as its memory delivers weights or its cores
multiply, whichever takes longer; a message takes the link's latency and its bytes. Of a layer with
experts, for a micro-batch of B tokens on each of A attention hosts, K experts a token, F FFN hosts:

    Ta  attention:  its weights and the cache of B tokens, read once
    Te  experts:    those of a host that any of the A B K rows chose, read once; or the products
    Tc  a way:      latency + bytes of the busier end / bandwidth; there, and back

    time = Ta + Te + Tc + Tc                                with one micro-batch in flight
    time = max(Ta, Te, Tc, (Ta + Te + Tc + Tc) / M)         with M of them, which overlap

and A B tokens in that time for each layer. Of all ways to deal N hosts out to the roles the fastest
is taken whose FFN hosts have room for the experts. Memory for windows is what
schedule/transport and schedule/ucx allocate for that geometry; see there.
"""
import argparse
import dataclasses
import json
import pathlib
import sys

import model_memory

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "hosts.md"
MODEL = ROOT / "tests/model/family/released/deepseek_v3.json"
BEGIN, END = "<!-- tools/host_model.py -->\n", "<!-- end -->\n"
HOSTS = (4, 8, 16, 32, 64, 128, 256, 512, 1000)
GBITS = (10, 25, 100)
RECORD_BYTES = 16  # UcxRecord, before each row of a message.


@dataclasses.dataclass(frozen=True)
class Host:
    memory: float = 512 * 2**30
    bandwidth: float = 300e9  # Bytes/s of its memory.
    flops: float = 20e12      # Of bf16 products, a second.


@dataclasses.dataclass(frozen=True)
class Link:
    bandwidth: float          # Bytes/s, in each direction at once.
    latency: float = 20e-6    # s, one way, of a small message.


@dataclasses.dataclass(frozen=True)
class Load:
    batch: int = 32           # B: tokens of a micro-batch.
    micro_batches: int = 2    # M
    context: int = 4096       # Tokens in the cache of each sequence.


class Model:
    """What a config.json says of a layer: bytes, in bf16 but for experts, which are fp8."""

    def __init__(self, config: dict) -> None:
        layers = config["num_hidden_layers"]
        self.num_layers = sum(model_memory.has_experts(config, i) for i in range(layers))
        self.num_experts = model_memory.num_experts(config)
        self.top_k = config["num_experts_per_tok"]
        self.row_bytes = 2 * config["hidden_size"]
        self.attention_bytes = 2 * model_memory.latent_attention(config)
        self.kv_bytes = model_memory.kv_bytes_per_token(config) / layers
        inner, hidden = config["moe_intermediate_size"], config["hidden_size"]
        self.expert_elements = 3 * inner * hidden
        self.expert_bytes = 2 * model_memory.FORMATS["fp8"](inner, hidden) \
            + model_memory.FORMATS["fp8"](hidden, inner)
        self.expert_bytes_of_all = self.num_layers * self.num_experts * self.expert_bytes


def attention_seconds(model: Model, host: Host, load: Load) -> float:
    cache = load.batch * load.context * model.kv_bytes
    products = 2 * load.batch * model.attention_bytes / 2
    return max((model.attention_bytes + cache) / host.bandwidth, products / host.flops)


def expert_seconds(model: Model, host: Host, load: Load, num_attention: int,
                   num_ffn: int) -> float:
    rows = num_attention * load.batch * model.top_k
    chosen = model.num_experts * (1 - (1 - 1 / model.num_experts) ** rows)
    read = chosen / num_ffn * model.expert_bytes / host.bandwidth
    return max(read, 2 * rows / num_ffn * model.expert_elements / host.flops)


def way_seconds(model: Model, link: Link, load: Load, num_attention: int, num_ffn: int) -> float:
    rows = load.batch * model.top_k * max(1, num_attention / num_ffn)
    return link.latency + rows * model.row_bytes / link.bandwidth


def layer_seconds(parts: tuple[float, float, float], micro_batches: int) -> float:
    attention, experts, way = parts
    total = attention + experts + 2 * way
    return total if micro_batches == 1 else max(*parts, total / micro_batches)


@dataclasses.dataclass(frozen=True)
class Plan:
    num_attention: int
    num_ffn: int
    parts: tuple[float, float, float]  # Ta, Te, Tc.
    seconds: float                     # Of a layer.
    tokens_per_second: float


def plan(model: Model, host: Host, link: Link, load: Load, num_hosts: int) -> Plan:
    """The fastest that fits. Raises ValueError: nothing does."""
    best = None
    for num_ffn in range(1, min(num_hosts, model.num_experts + 1)):
        if model.expert_bytes_of_all / num_ffn > host.memory:
            continue
        num_attention = num_hosts - num_ffn
        parts = (attention_seconds(model, host, load),
                 expert_seconds(model, host, load, num_attention, num_ffn),
                 way_seconds(model, link, load, num_attention, num_ffn))
        seconds = layer_seconds(parts, load.micro_batches)
        speed = num_attention * load.batch / (seconds * model.num_layers)
        if best is None or speed > best.tokens_per_second:
            best = Plan(num_attention, num_ffn, parts, seconds, speed)
    if best is None:
        raise ValueError(f"{num_hosts} hosts have no room for the experts")
    return best


def window_bytes(model: Model, load: Load, num_attention: int, num_ffn: int) -> tuple[int, int]:
    """Of an attention host, of an FFN host: what arrives, and two publications for each lane and
    peer (UcxOutbox), each with room for every slot."""
    rows = load.micro_batches * load.batch * model.top_k
    kept = 2 * rows * (model.row_bytes + RECORD_BYTES)
    arrived = rows * model.row_bytes
    return arrived + num_ffn * kept, num_attention * (arrived + kept)


def bound_by(found: Plan) -> str:
    names = ("attention", "experts", "link")
    longest = max(found.parts)
    return names[found.parts.index(longest)] if longest >= found.seconds else "overlap"


def table() -> str:
    model, host, load = Model(json.loads(MODEL.read_text("utf-8"))), Host(), Load()
    lines = ["| hosts | A + F | Ta, Te | " + " | ".join(f"at {g} Gbit/s" for g in GBITS)
             + " | GiB, A and F |",
             "|---|---|---|" + "---|" * len(GBITS) + "---|"]
    for num_hosts in HOSTS:
        plans = [plan(model, host, Link(g * 1e9 / 8), load, num_hosts) for g in GBITS]
        last = plans[-1]
        cells = [f"{p.tokens_per_second:,.0f} {bound_by(p)}" for p in plans]
        memory = window_bytes(model, load, last.num_attention, last.num_ffn)
        lines.append(
            f"| {num_hosts:,} | {last.num_attention} + {last.num_ffn} | "
            f"{last.parts[0] * 1e3:.2f}, {last.parts[1] * 1e3:.2f} | " + " | ".join(cells)
            + " | " + ", ".join(f"{m / 2**30:.1f}" for m in memory) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true",
                        help="say whether docs/hosts.md has this table, and write nothing")
    arguments = parser.parse_args()
    page = PAGE.read_text("utf-8")
    head, rest = page.split(BEGIN)
    wanted = head + BEGIN + table() + END + rest.split(END, 1)[1]
    if wanted == page:
        return 0
    if arguments.check:
        print("docs/hosts.md has another table; run tools/host_model.py", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
