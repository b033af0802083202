"""The DeepSeek-V3 decoder in PyTorch, for training on a CPU.

Differs from the published implementation in layout only: the routed experts of a layer are stacked
([E, 2I, H] and [E, H, I]) and attention, experts and RMSNorm have hand-written backward passes,
because autograd's own scatter and slice gradients cost more than the matrix products here.
`checkpoint.py` maps between this layout and Hugging Face tensor names.
"""
import json
import pathlib

import torch
from torch import Tensor, nn
from torch.nn import functional

QUERY_BLOCK = 128
ROW_MULTIPLE = 128


class RmsNorm(torch.autograd.Function):
    """y = x / sqrt(mean(x^2) + eps) * gamma over the last axis, in fp32."""

    @staticmethod
    def forward(ctx, x: Tensor, gamma: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True).add_(eps))
        normal = x * scale
        ctx.save_for_backward(normal, scale, gamma)
        return normal * gamma

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, scale, gamma = ctx.saved_tensors
        width = normal.shape[-1]
        grad_gamma = (grad * normal).reshape(-1, width).sum(0)
        grad_normal = grad * gamma
        mean = (grad_normal * normal).sum(-1, keepdim=True).div_(width)
        return grad_normal.addcmul_(normal, mean, value=-1.0).mul_(scale), grad_gamma, None


class CausalAttention(torch.autograd.Function):
    """softmax(q k^T * scale) v per head; the keys after a block of queries are never touched."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q, k [G, T, D], v [G, T, Dv] -> [G, T, Dv]."""
        tokens = q.shape[1]
        mask = torch.full((QUERY_BLOCK, QUERY_BLOCK), -torch.inf, device=q.device).triu(1)
        q = q * scale
        outs, probabilities = [], []
        for begin in range(0, tokens, QUERY_BLOCK):
            end = min(begin + QUERY_BLOCK, tokens)
            scores = torch.bmm(q[:, begin:end], k[:, :end].transpose(1, 2)).float()
            scores[:, :, begin:] += mask[:end - begin, :end - begin]
            block = torch.softmax(scores, -1).to(q.dtype)
            probabilities.append(block)
            outs.append(torch.bmm(block, v[:, :end]))
        out = torch.cat(outs, 1)
        ctx.save_for_backward(q, k, v, out, *probabilities)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, *probabilities = ctx.saved_tensors
        delta = (grad * out).sum(-1, keepdim=True, dtype=torch.float32)
        grad_k = torch.zeros_like(k, dtype=torch.float32)
        grad_v = torch.zeros_like(v, dtype=torch.float32)
        grads_q = []
        for index, block in enumerate(probabilities):
            begin, end = index * QUERY_BLOCK, block.shape[2]
            grad_block = grad[:, begin:end]
            grad_v[:, :end] += torch.bmm(block.transpose(1, 2), grad_block)
            grad_p = torch.bmm(grad_block, v[:, :end].transpose(1, 2)).float()
            grad_s = grad_p.sub_(delta[:, begin:end]).mul_(block).to(q.dtype)
            grads_q.append(torch.bmm(grad_s, k[:, :end]))
            grad_k[:, :end] += torch.bmm(grad_s.transpose(1, 2), q[:, begin:end])
        grad_q = torch.cat(grads_q, 1) * ctx.scale
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), None


class RoutedExperts(torch.autograd.Function):
    """Sum over the picks of weight * expert(x); each expert sees only its own rows.

    The rows of an expert are padded to a multiple of ROW_MULTIPLE with rows of weight 0: the
    matrix library builds a kernel per distinct row count and keeps it only if it comes again.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weights: Tensor, picks: Tensor, gate_up: Tensor,
                down: Tensor) -> Tensor:
        """x [N, H], weights and picks [N, K], gate_up [E, 2I, H], down [E, H, I] -> [N, H]."""
        tokens, top_k = picks.shape
        place, counts = padded_places(picks.reshape(-1), gate_up.shape[0])
        flat = torch.arange(tokens * top_k, device=x.device)
        source = x.new_zeros(sum(counts), dtype=torch.int64)
        source[place] = torch.div(flat, top_k, rounding_mode="floor")
        row_weights = x.new_zeros(sum(counts), 1)
        row_weights[place, 0] = weights.reshape(-1).to(x.dtype)
        rows = x.index_select(0, source)
        both = torch.cat([part @ gate_up[e].t() for e, part in enumerate(rows.split(counts))])
        gate, up = both.float().chunk(2, 1)
        hidden = functional.silu(gate).mul_(up).to(x.dtype)
        y = torch.cat([part @ down[e].t() for e, part in enumerate(hidden.split(counts))])
        y = y.index_select(0, place).view(tokens, top_k, -1)
        ctx.save_for_backward(rows, both, hidden, y, weights, row_weights, source, place, gate_up,
                              down)
        ctx.counts = counts
        return torch.bmm(weights.to(y.dtype).unsqueeze(1), y).squeeze(1)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (rows, both, hidden, y, weights, row_weights, source, place, gate_up,
         down) = ctx.saved_tensors
        tokens, top_k = weights.shape
        grad_weights = torch.bmm(y, grad.unsqueeze(2)).squeeze(2).float()
        grad_y = grad.index_select(0, source).mul_(row_weights).split(ctx.counts)
        hidden_parts = hidden.split(ctx.counts)
        grad_down = torch.stack([g.t() @ h for g, h in zip(grad_y, hidden_parts)])
        grad_hidden = torch.cat([g @ down[e] for e, g in enumerate(grad_y)]).float()
        gate, up = both.float().chunk(2, 1)
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        grad_gate = (sigmoid + silu * (1 - sigmoid)).mul_(up).mul_(grad_hidden)
        grad_both = torch.cat((grad_gate, silu.mul_(grad_hidden)), 1).to(rows.dtype)
        parts = grad_both.split(ctx.counts)
        grad_gate_up = torch.stack([g.t() @ r for g, r in zip(parts, rows.split(ctx.counts))])
        grad_rows = torch.cat([g @ gate_up[e] for e, g in enumerate(parts)])
        grad_x = grad_rows.index_select(0, place).view(tokens, top_k, -1).sum(1)
        return grad_x, grad_weights, None, grad_gate_up, grad_down


def padded_places(experts: Tensor, num_experts: int) -> tuple[Tensor, list[int]]:
    """The row of each flat pick in expert order, and the padded row count of each expert."""
    order = torch.argsort(experts, stable=True)
    counts = torch.bincount(experts, minlength=num_experts)
    padded = torch.div(counts + ROW_MULTIPLE - 1, ROW_MULTIPLE, rounding_mode="floor")
    padded *= ROW_MULTIPLE
    shift = (padded.cumsum(0) - padded) - (counts.cumsum(0) - counts)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    return place + shift.index_select(0, experts), padded.tolist()


def interleaved_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates pairs (2i, 2i+1) of the last axis; the result is evens | odds.

    x [B, N, T, D], cos and sin [T, D/2]. Queries and keys share the output order, so scores do
    not depend on it.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), -1)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T in the compute type of x; gradients of W come back in fp32."""
    return functional.linear(x, weight.to(x.dtype))


class Attention(nn.Module):
    """Multi-head latent attention, with keys and values expanded (as in training)."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.heads = config["num_attention_heads"]
        self.nope, self.rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        self.value, self.rank = config["v_head_dim"], config["kv_lora_rank"]
        hidden, q_rank = config["hidden_size"], config["q_lora_rank"]
        self.q_a_proj = matrix(q_rank, hidden)
        self.q_a_layernorm = nn.Parameter(torch.ones(q_rank))
        self.q_b_proj = matrix(self.heads * (self.nope + self.rope), q_rank)
        self.kv_a_proj_with_mqa = matrix(self.rank + self.rope, hidden)
        self.kv_a_layernorm = nn.Parameter(torch.ones(self.rank))
        self.kv_b_proj = matrix(self.heads * (self.nope + self.value), self.rank)
        self.o_proj = matrix(hidden, self.heads * self.value, gain=0.3)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, H] -> [B, T, H]."""
        batch, tokens, _ = x.shape
        latent = RmsNorm.apply(linear(x, self.q_a_proj).float(), self.q_a_layernorm, 1e-6)
        q = linear(latent.to(x.dtype), self.q_b_proj)
        q = q.view(batch, tokens, self.heads, -1).transpose(1, 2)
        latent, k_rope = linear(x, self.kv_a_proj_with_mqa).split((self.rank, self.rope), -1)
        latent = RmsNorm.apply(latent.float(), self.kv_a_layernorm, 1e-6)
        kv = linear(latent.to(x.dtype), self.kv_b_proj)
        kv = kv.view(batch, tokens, self.heads, -1).transpose(1, 2)
        k_nope, v = kv.split((self.nope, self.value), -1)
        q_nope, q_rope = q.split((self.nope, self.rope), -1)
        q = torch.cat((q_nope, interleaved_rope(q_rope.float(), cos, sin).to(x.dtype)), -1)
        k_rope = interleaved_rope(k_rope.unsqueeze(1).float(), cos, sin).to(x.dtype)
        k = torch.cat((k_nope, k_rope.expand(-1, self.heads, -1, -1)), -1)
        out = CausalAttention.apply(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1),
                                    (self.nope + self.rope) ** -0.5)
        out = out.view(batch, self.heads, tokens, -1).transpose(1, 2).flatten(2)
        return linear(out, self.o_proj)


class Mlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = matrix(intermediate, hidden)
        self.up_proj = matrix(intermediate, hidden)
        self.down_proj = matrix(hidden, intermediate, gain=0.3)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = linear(x, self.gate_proj), linear(x, self.up_proj)
        return linear(functional.silu(gate) * up, self.down_proj)


class Moe(nn.Module):
    """Sigmoid routing limited to groups, chosen with a balancing bias, plus a shared expert."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.top_k, self.groups = config["num_experts_per_tok"], config["n_group"]
        self.top_groups, self.scale = config["topk_group"], config["routed_scaling_factor"]
        hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
        experts = config["n_routed_experts"]
        self.gate = matrix(experts, hidden)
        self.gate_up = nn.Parameter(torch.randn(experts, 2 * inner, hidden) * hidden ** -0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, inner) * 0.3 * inner ** -0.5)
        self.shared_experts = Mlp(hidden, inner * config["n_shared_experts"])
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts), persistent=False)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [N, H] -> picks and weights [N, K]; the bias chooses, the plain score weighs."""
        scores = torch.sigmoid(functional.linear(x.float(), self.gate))
        choice = (scores + self.bias).detach()
        grouped = choice.view(len(x), self.groups, -1)
        group_scores = grouped.topk(2, -1)[0].sum(-1)
        kept = group_scores.topk(self.top_groups, -1)[1]
        excluded = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, kept, False)
        choice = grouped.masked_fill(excluded.unsqueeze(-1), -torch.inf).flatten(1)
        picks = choice.topk(self.top_k, -1)[1]
        weights = scores.gather(1, picks)
        return picks, weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        picks, weights = self.route(rows)
        if self.training:
            self.load += torch.bincount(picks.reshape(-1), minlength=len(self.load))
        routed = RoutedExperts.apply(rows, weights, picks, self.gate_up.to(x.dtype),
                                     self.down.to(x.dtype))
        return routed.view_as(x) + self.shared_experts(x)

    def update_bias(self, speed: float) -> float:
        """Moves each bias by `speed` towards an even load; returns max load / mean load."""
        mean = self.load.mean()
        self.bias += speed * torch.sign(mean - self.load)
        imbalance = float(self.load.max() / mean)
        self.load.zero_()
        return imbalance


class Block(nn.Module):
    """Pre-norm residual block."""

    def __init__(self, config: dict, layer_idx: int) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.eps = config["rms_norm_eps"]
        self.input_layernorm = nn.Parameter(torch.ones(hidden))
        self.post_attention_layernorm = nn.Parameter(torch.ones(hidden))
        self.self_attn = Attention(config)
        is_dense = layer_idx < config["first_k_dense_replace"]
        self.mlp = Mlp(hidden, config["intermediate_size"]) if is_dense else Moe(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype,
                drop: float) -> Tensor:
        """x [B, T, H] fp32; `drop` is the share of tokens for which a branch adds nothing."""
        branch = RmsNorm.apply(x, self.input_layernorm, self.eps).to(dtype)
        x = x + keep_tokens(self.self_attn(branch, cos, sin).float(), drop)
        branch = RmsNorm.apply(x, self.post_attention_layernorm, self.eps).to(dtype)
        return x + keep_tokens(self.mlp(branch).float(), drop)


def keep_tokens(branch: Tensor, drop: float) -> Tensor:
    """Zeroes the branch [B, T, H] of a random share `drop` of the tokens, rescales the others."""
    if drop == 0:
        return branch
    kept = torch.rand(branch.shape[:2] + (1,), device=branch.device) >= drop
    return branch * (kept / (1 - drop))


class Model(nn.Module):
    """Token ids [B, T] -> logits [B, T, V]."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.config = config
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        self.embed_tokens = nn.Parameter(torch.randn(vocab, hidden) * 0.5)
        self.layers = nn.ModuleList(
            Block(config, i) for i in range(config["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.lm_head = nn.Parameter(torch.randn(vocab, hidden) * 0.5 * hidden ** -0.5)
        rope = config["qk_rope_head_dim"]
        frequencies = config["rope_theta"] ** (-torch.arange(0, rope, 2).double() / rope)
        positions = torch.arange(config["max_position_embeddings"]).double()
        angles = positions[:, None] * frequencies
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, ids: Tensor, dtype: torch.dtype = torch.float32,
                drop: float = 0.0) -> Tensor:
        tokens = ids.shape[1]
        x = functional.embedding(ids, self.embed_tokens)
        cos, sin = self.cos[:tokens], self.sin[:tokens]
        for layer in self.layers:
            x = layer(x, cos, sin, dtype, drop)
        x = RmsNorm.apply(x, self.norm, self.config["rms_norm_eps"]).to(dtype)
        return linear(x, self.lm_head).float()


def matrix(rows: int, columns: int, gain: float = 1.0) -> nn.Parameter:
    """A weight [rows, columns] that scales the root mean square of its input by `gain`."""
    return nn.Parameter(torch.randn(rows, columns) * gain * columns ** -0.5)


def load_config(path: pathlib.Path) -> dict:
    return json.loads(path.read_text("utf-8"))
