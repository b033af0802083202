#!/usr/bin/env python3
"""How fast an instance decodes on several hosts, on paper: for planners, and for docs/host_figures.md.

Nothing here is measured. A host computes as fast as its memory delivers bytes or its cores
multiply, whichever takes longer; a message takes the link's latency and its bytes. A step gives
each sequence of a micro-batch one token: B sequences on each of A attention hosts, F FFN hosts, M
micro-batches in flight. Every part is the sum over all layers of a step:

    Ta  attention:  weights (bf16) and the cache of B sequences, read once; or the products with
                    both. Then the head.
    Te  experts:    of the host with most of them, ceil(E / F) of each layer: those that any of the
                    A B K rows chose, read once; or the products. Shared experts and dense MLPs are
                    on every FFN host; an attention host sends all of their rows to one.
    Tc  a way:      latency + bytes of the busier end / bandwidth; there, and back. Each slot of a
                    token is a row: K, and one for the shared experts.

    time of a step = max(Ta, Te, Tc, (Ta + Te + Tc + Tc) / M)      M micro-batches overlap

That is A B tokens, and a sequence waits M such times for its next one. Of all ways to deal N hosts
out to the roles the fastest that has the memory is taken: weights, cache, the windows that
schedule/transport and schedule/ucx allocate for that geometry, and the rows of a pass that
daemon/ffn and daemon/attention do; see there.

Left out: prompts; choices of experts that are not uniform; norms, softmax, routing, combining and
sampling, the embedding, and whatever else is no product of matrices; what a worker waits for its
threads, or the gateway for its one.
"""
import argparse
import dataclasses
import json
import math
import pathlib
import sys

import model_memory

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "host_figures.md"
RELEASED = ROOT / "tests/model/family/released"
MODEL = RELEASED / "deepseek_v3.json"
BEGIN, END = "<!-- tools/host_model.py -->\n", "<!-- end -->\n"
HOSTS = (4, 8, 16, 32, 64, 128, 256, 512, 1000)
GBITS = (10.0, 25.0, 100.0)
RECORD_BYTES = 16        # UcxRecord, before each row of a message.
SESSIONS_MAX = 1024      # Attention workers of an instance (schedule/layout/geometry.h).
MICRO_BATCHES_MAX = 64   # Likewise.
KINDS = {json.loads(path.read_text("utf-8"))["model_type"] for path in RELEASED.glob("*.json")}


@dataclasses.dataclass(frozen=True)
class Host:
    memory: float = 512 * 2**30
    bandwidth: float = 300e9  # Bytes/s of its memory.
    flops: float = 20e12      # Of bf16 products, a second.

    def seconds(self, num_bytes: float, products: float) -> float:
        """For reading bytes and, beside that, multiplying and adding `products` pairs."""
        return max(num_bytes / self.bandwidth, 2 * products / self.flops)


@dataclasses.dataclass(frozen=True)
class Link:
    bandwidth: float          # Bytes/s, in each direction at once.
    latency: float = 20e-6    # s, one way, of a small message.


@dataclasses.dataclass(frozen=True)
class Load:
    batch: int = 32           # B: sequences of a micro-batch.
    micro_batches: int = 2    # M
    context: int = 4096       # Tokens in the cache of each sequence.


class Model:
    """What a config.json says of a step. Raises ValueError: it is none that can be planned."""

    def __init__(self, config: dict, weights: str | None = None) -> None:
        config = text_model_of(config)
        try:
            self._read(config, weights or default_weights(config))
        except KeyError as error:
            raise ValueError(f"config.json has no {error.args[0]}") from error
        except (AttributeError, TypeError) as error:
            raise ValueError(f"config.json has a value of another type ({error})") from error

    def _read(self, config: dict, weights: str) -> None:
        if config["model_type"] not in KINDS:
            raise ValueError(f"model_type is {config['model_type']}; there are "
                             + ", ".join(sorted(KINDS)))
        layers, hidden = range(config["num_hidden_layers"]), config["hidden_size"]
        with_experts = [i for i in layers if model_memory.has_experts(config, i)]
        if not with_experts:
            raise ValueError("config.json has no layer with experts")
        self.num_layers, self.num_dense = len(with_experts), len(layers) - len(with_experts)
        self.top_k, self.row_bytes = config["num_experts_per_tok"], 2 * hidden
        (self.num_experts, inner), *shared = model_memory.mlp_widths(config, with_experts[0])
        self.expert_elements, self.expert_bytes = mlp(config, weights, inner)
        self.shared_elements, self.shared_bytes = mlp(config, weights, shared[0][1] if shared else 0)
        dense = [i for i in layers if i not in with_experts][:1]
        self.dense_elements, self.dense_bytes = mlp(
            config, weights, model_memory.mlp_widths(config, dense[0])[0][1] if dense else 0)
        self.num_slots = self.top_k + len(shared)

        self.other_bytes = model_memory.other_bytes(config)
        self.head_elements = config["vocab_size"] * hidden
        ends = 2 * self.head_elements
        self.attention_bytes = (self.other_bytes - 2 * ends) / len(layers)  # Of a layer, on average.
        self.kv_bytes = model_memory.kv_bytes_per_token(config) / len(layers)
        # Of one token of the cache: its score, and its part of the sum. Latent, both are products
        # with the cache itself, for every head.
        width = (2 * config["kv_lora_rank"] + config["qk_rope_head_dim"]
                 if model_memory.is_latent(config) else 2 * model_memory.head_dim(config))
        self.kv_products = config["num_attention_heads"] * width
        self.windows = [window(config, i) for i in layers]
        self.context_max = config["max_position_embeddings"]

    def attended(self, context: int) -> list[int]:
        """Tokens that each layer has in its cache."""
        return [min(context, each) for each in self.windows]


def text_model_of(config: dict) -> dict:
    """The keys of the text model, if it is a part of another one (model/family/text_config.h)."""
    text = config.get("text_config")
    if "num_hidden_layers" in config or not isinstance(text, dict):
        return config
    of_all = {key: config[key] for key in ("quantization_config", "tie_word_embeddings")
              if key in config}
    return of_all | {key: value for key, value in text.items() if value is not None}


def default_weights(config: dict) -> str:
    method = (config.get("quantization_config") or {}).get("quant_method")
    if method not in (None, "fp8"):
        raise ValueError(f"quant_method is {method}; say --weights "
                         + ", ".join(model_memory.FORMATS))
    return method or "bf16"


def mlp(config: dict, weights: str, inner: int) -> tuple[int, int]:
    """Elements and bytes of one MLP of that inner width."""
    return 3 * inner * config["hidden_size"], \
        model_memory.one_mlp_bytes(config, weights, inner) if inner else 0


def window(config: dict, layer: int) -> float:
    kinds = config.get("layer_types")
    is_sliding = (config.get("sliding_window") and config.get("use_sliding_window", True)
                  and (kinds is None or kinds[layer] == "sliding_attention"))
    return config["sliding_window"] if is_sliding else math.inf


def experts_of_host(model: Model, num_ffn: int) -> int:
    return -(-model.num_experts // num_ffn)


def tokens_of_host(load: Load, num_attention: int, num_ffn: int) -> int:
    """Of the FFN host to which most attention hosts send the rows of what all FFN hosts have."""
    return load.batch * -(-num_attention // num_ffn)


def attention_seconds(model: Model, host: Host, load: Load) -> float:
    layers = sum(host.seconds(model.attention_bytes + load.batch * tokens * model.kv_bytes,
                              load.batch * (model.attention_bytes / 2 + tokens * model.kv_products))
                 for tokens in model.attended(load.context))
    return layers + host.seconds(2 * model.head_elements, load.batch * model.head_elements)


def expert_seconds(model: Model, host: Host, load: Load, num_attention: int,
                   num_ffn: int) -> float:
    rows = num_attention * load.batch * model.top_k
    share = experts_of_host(model, num_ffn) / model.num_experts
    chosen = model.num_experts * (1 - (1 - 1 / model.num_experts) ** rows)
    tokens = tokens_of_host(load, num_attention, num_ffn)
    layer = host.seconds(share * chosen * model.expert_bytes + model.shared_bytes,
                         share * rows * model.expert_elements + tokens * model.shared_elements)
    dense = host.seconds(model.dense_bytes, tokens * model.dense_elements)
    return model.num_layers * layer + model.num_dense * dense


def way_seconds(model: Model, link: Link, load: Load, num_attention: int, num_ffn: int) -> float:
    """Of a layer with experts."""
    share = experts_of_host(model, num_ffn) / model.num_experts
    routed = num_attention * load.batch * model.top_k * share
    shared = tokens_of_host(load, num_attention, num_ffn) * (model.num_slots - model.top_k)
    rows = max(load.batch * model.num_slots, routed + shared)
    return link.latency + rows * model.row_bytes / link.bandwidth


def ways_seconds(model: Model, link: Link, load: Load, num_attention: int, num_ffn: int) -> float:
    rows = tokens_of_host(load, num_attention, num_ffn)
    dense = link.latency + rows * model.row_bytes / link.bandwidth
    return (model.num_layers * way_seconds(model, link, load, num_attention, num_ffn)
            + model.num_dense * dense)


def step_seconds(parts: tuple[float, float, float], micro_batches: int) -> float:
    attention, experts, way = parts
    return max(*parts, (attention + experts + 2 * way) / micro_batches)


def window_bytes(model: Model, load: Load, num_attention: int, num_ffn: int) -> tuple[int, int]:
    """Of an attention host, of an FFN host: what arrives, and a publication for each lane and
    peer (UcxOutbox), with room for every slot."""
    rows = load.micro_batches * load.batch * model.num_slots
    kept = rows * (model.row_bytes + RECORD_BYTES)
    arrived = rows * model.row_bytes
    return arrived + num_ffn * kept, num_attention * (arrived + kept)


def pass_bytes(model: Model, load: Load, num_attention: int) -> tuple[int, int]:
    """Of an attention host: residual, rows, results and routing of its micro-batches. Of an FFN host:
    rows, results and four indices of the slots of a micro-batch of each attention host."""
    return (load.micro_batches * load.batch * (3 * model.row_bytes + 8 * model.top_k),
            num_attention * load.batch * model.num_slots * (2 * model.row_bytes + 16))


def memory_bytes(model: Model, load: Load, num_attention: int, num_ffn: int) -> tuple[float, float]:
    """Of an attention host, of the fullest FFN host."""
    windows = window_bytes(model, load, num_attention, num_ffn)
    passes = pass_bytes(model, load, num_attention)
    cache = load.micro_batches * load.batch * sum(model.attended(load.context)) * model.kv_bytes
    layer = experts_of_host(model, num_ffn) * model.expert_bytes + model.shared_bytes
    experts = model.num_layers * layer + model.num_dense * model.dense_bytes
    return model.other_bytes + cache + windows[0] + passes[0], experts + windows[1] + passes[1]


@dataclasses.dataclass(frozen=True)
class Plan:
    num_attention: int
    num_ffn: int
    parts: tuple[float, float, float]  # Ta, Te, Tc, of a step.
    seconds: float                     # Of a step.
    tokens_per_second: float


def plan(model: Model, host: Host, link: Link, load: Load, num_hosts: int) -> Plan:
    """The fastest that fits. Raises ValueError: nothing does."""
    best, least = None, (math.inf, math.inf)
    attention = attention_seconds(model, host, load)
    for num_ffn in range(max(1, num_hosts - SESSIONS_MAX), min(num_hosts, model.num_experts + 1)):
        num_attention = num_hosts - num_ffn
        needed = memory_bytes(model, load, num_attention, num_ffn)
        if max(needed) > host.memory:
            least = min(least, needed, key=max)
            continue
        parts = (attention, expert_seconds(model, host, load, num_attention, num_ffn),
                 ways_seconds(model, link, load, num_attention, num_ffn))
        seconds = step_seconds(parts, load.micro_batches)
        speed = num_attention * load.batch / seconds
        if best is None or speed > best.tokens_per_second:
            best = Plan(num_attention, num_ffn, parts, seconds, speed)
    if best is None and least[0] == math.inf:
        raise ValueError(f"an instance has at most {SESSIONS_MAX} attention hosts and "
                         f"{model.num_experts} FFN hosts, one for each expert")
    if best is None:
        raise ValueError(f"no room: attention hosts need {least[0] / 2**30:.0f} GiB, FFN hosts "
                         f"{least[1] / 2**30:.0f}")
    return best


def bound_by(found: Plan) -> str:
    names = ("attention", "experts", "link")
    longest = max(found.parts)
    return names[found.parts.index(longest)] if longest >= found.seconds else "overlap"


def row(model: Model, host: Host, link: Link, load: Load, num_hosts: int) -> list[str]:
    try:
        found = plan(model, host, link, load, num_hosts)
    except ValueError as error:
        return [str(error), "", "", "", ""]
    memory = memory_bytes(model, load, found.num_attention, found.num_ffn)
    windows = window_bytes(model, load, found.num_attention, found.num_ffn)
    return [f"{found.num_attention} + {found.num_ffn}",
            f"{found.tokens_per_second:,.0f} {bound_by(found)}",
            f"{load.micro_batches * found.seconds * 1e3:,.0f}",
            ", ".join(f"{part * 1e3:.0f}" for part in found.parts),
            ", ".join(f"{all_of_it / 2**30:.0f} ({part / 2**30:.1f})"
                      for all_of_it, part in zip(memory, windows))]


def table(model: Model, host: Host = Host(), load: Load = Load(), gbits: tuple = GBITS,
          hosts: tuple = HOSTS, latency: float = Link.latency) -> str:
    lines = ["| hosts | Gbit/s | A + F | tokens/s | ms a token | Ta, Te, Tc | GiB of A, F (windows) |",
             "|---|---|---|---|---|---|---|"]
    for num_hosts in hosts:
        for gbit in gbits:
            cells = row(model, host, Link(gbit * 1e9 / 8, latency), load, num_hosts)
            lines.append(f"| {num_hosts:,} | {gbit:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def read_model(name: str, weights: str | None) -> Model:
    """Raises ValueError: no such model, or none that can be planned."""
    path = RELEASED / f"{name}.json"
    if not path.exists():
        path = pathlib.Path(name)
        path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        names = ", ".join(sorted(each.stem for each in RELEASED.glob("*.json")))
        raise ValueError(f"--model {name} is no config.json that can be read ({error}); give one, "
                         f"or one of {names}") from error
    if not isinstance(config, dict):
        raise ValueError(f"--model {name} is no JSON object")
    return Model(config, weights)


def check_page(is_update: bool) -> int:
    page = PAGE.read_text("utf-8")
    head, rest = page.split(BEGIN)
    wanted = head + BEGIN + table(read_model(MODEL.stem, None)) + END + rest.split(END, 1)[1]
    if wanted == page:
        return 0
    if not is_update:
        print("docs/host_figures.md has another table; run tools/host_model.py --update",
              file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


def positive(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} must be above 0")
    return value


def count(least: int, most: float = math.inf):
    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            limit = f"from {least} on" if most == math.inf else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{text} must be {limit}")
        return value
    parse.__name__ = "integer"  # argparse names the type of what it could not parse.
    return parse


def parser_of_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Tokens per second of an instance on N hosts, computed and not measured: the "
        "fastest split into A attention and F FFN hosts, what limits it, and what it takes. Ta, Te "
        "and Tc are the ms of attention, experts and one direction of the links for a step, which "
        "gives each sequence of a micro-batch one token.")
    option = parser.add_argument
    option("--model", default=MODEL.stem, metavar="NAME",
           help="a config.json, or a file of tests/model/family/released (%(default)s)")
    option("--weights", choices=model_memory.FORMATS, help="of the experts (config.json's)")
    option("--hosts", type=count(2), nargs="+", default=list(HOSTS), metavar="N")
    option("--gbits", type=positive, nargs="+", default=list(GBITS), metavar="G", help="of links")
    option("--latency-us", type=positive, default=20.0, metavar="US", help="one way (%(default)g)")
    option("--memory-gib", type=positive, default=512.0, metavar="GIB", help="a host (%(default)g)")
    option("--memory-gb-s", type=positive, default=300.0, metavar="GB",
           help="that a host reads per second (%(default)g)")
    option("--tflops", type=positive, default=20.0, help="of a host in bf16 (%(default)g)")
    option("--batch", type=count(1), default=32, help="sequences of a micro-batch (%(default)s)")
    option("--micro-batches", type=count(1, MICRO_BATCHES_MAX), default=2, metavar="M",
           help="in flight on each attention host (%(default)s)")
    option("--context", type=count(1), default=4096, help="tokens of a sequence (%(default)s)")
    option("--update", action="store_true", help="write the table of docs/host_figures.md instead")
    option("--check", action="store_true", help="say whether docs/host_figures.md has its table instead")
    return parser


def main() -> int:
    parser = parser_of_options()
    options = parser.parse_args()
    if options.update or options.check:
        if len(sys.argv) > 2:
            parser.error("--update and --check take no other option: the page has the defaults")
        return check_page(options.update)
    try:
        model = read_model(options.model, options.weights)
    except ValueError as error:
        parser.error(str(error))
    if options.context > model.context_max:
        parser.error(f"--context is {options.context}; max_position_embeddings of {options.model} "
                     f"is {model.context_max}")
    host = Host(options.memory_gib * 2**30, options.memory_gb_s * 1e9, options.tflops * 1e12)
    load = Load(options.batch, options.micro_batches, options.context)
    print(table(model, host, load, options.gbits, options.hosts, options.latency_us * 1e-6), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
