# SPDX-License-Identifier: Apache-2.0
"""afd.FfnWorker: an FFN worker of a live afdd, all but its experts (docs/protocol.md, docs/wire.md)."""
import os
import struct
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from afd import _native
from afd._client import socket_path
from afd._context import MASKED_ID, ScheduleContext, map_descriptor
from afd._control import ControlChannel, readable_of
from afd._errors import Error, FailedPrecondition, InvalidArgument
from afd._operators import make_operators
from afd._tensors import DTYPES, BFloat16, bytes_of

_FFN = 2  # control.proto: Role
_SHARED_EXPERTS_FFN = 1  # control.proto: SharedExperts
_TOKENS, _ROUNDS, _PASSES, _ROWS = range(4)  # daemon/metrics/metrics.h: Counter
_IDLE, _COMPUTING = 1, 2
_DEADLY = 3
_TICK_SECONDS = 1.0
_LAYOUT_VERSION = 5
_OPERATORS = make_operators()
# Byte offsets of docs/wire.md: in a control segment, and in a metrics segment.
_DOORBELL_ARMED, _PROGRESS, _HEARTBEAT, _ACKNOWLEDGED = 1536, 1664, 1672, 2048
_HEARTBEAT_WORDS = 9
_LINE_BYTES = 128
_COUNTERS_END, _HISTOGRAMS, _TRACE_HEAD, _LANES = 896, 1024, 11264, 143360


class Batch(NamedTuple):
    """Rows of one pass, sorted by expert. The lists say where each belongs; give_back() takes them."""
    x: BFloat16  # [rows, H]
    groups: list[tuple[int, int]]  # (key, rows), keys ascending
    session_ids: np.ndarray  # int32 [rows], as the next three
    micro_batch_ids: np.ndarray
    token_ids: np.ndarray
    expert_offsets: np.ndarray
    rounds: np.ndarray  # int32 [A, M]; 1 where nothing was taken


class FfnWorker:
    """The place of an FFN worker in a running afdd that was started with --spawn false.

        with afd.FfnWorker("demo", rank=1) as worker:
            ...                            # the weights of worker.held_experts(...)
            worker.ready()
            for batch in worker.batches(hidden_size):
                worker.give_back(batch, rows)     # [rows, H] for batch.x, in its order

    Segments come by descriptors and are arrays: window and control, and those of the sessions. It
    takes bf16 rows in the windows that the sessions have routed: afdd needs --dispatch window,
    --router attention and no row checksums. x86-64 only: NumPy's loads and stores have no order of
    their own. One thread at a time. Errors: Unavailable once afdd
    is gone; then this process has to end. FailedPrecondition: a call out of the order above.
    """

    def __init__(self, instance: str = "default", rank: int = 0, *, path: str | None = None,
                 timeout: float = 10.0):
        if not isinstance(rank, (int, np.integer)) or not 0 <= rank < 2 ** 32:
            raise InvalidArgument(f"rank is {rank!r}; it must be a number from 0 on", "rank")
        where = path or socket_path(instance).removesuffix(".sock") + ".control.sock"
        self.rank = int(rank)
        self._is_held = np.zeros((0, 0), bool)  # [layers, local experts]
        self._channel = ControlChannel(where, _FFN, self.rank, timeout)
        try:
            self.welcome = self._channel.welcome
            _check_welcome(self.welcome)
            self._attach()
        except BaseException as error:
            self._fail(error)
            raise

    model_dir = property(lambda self: self.welcome.model_dir)
    numeric_class = property(lambda self: self.welcome.numeric_class)

    def _attach(self) -> None:
        num_segments = len(self.welcome.segments)
        doorbells = self._channel.fds[:-num_segments]
        self._doorbell, self._session_doorbells = doorbells[0], doorbells[1:]
        prefix = self.welcome.segment_prefix
        segments = {}
        for name, each in zip(self.welcome.segments, self._channel.fds[-num_segments:]):
            kind = name.removeprefix(prefix + "-")
            # What others write is read-only here.
            is_writable = kind in (f"ffn{self.rank}-control", f"ffn{self.rank}-metrics") or (
                kind.startswith("attn") and kind.endswith("-window"))
            segments[kind] = map_descriptor(each, name, is_writable=is_writable)
        self.window = segments[f"ffn{self.rank}-window"]
        self.control = segments[f"ffn{self.rank}-control"]
        self.context = ScheduleContext(self.control)
        sizes = self.context.common
        self._sizes = A, M = sizes.session_num, sizes.micro_batch_num
        self.attention_windows = [segments[f"attn{each}-window"] for each in range(A)]
        # Its places are those of every session.
        self._attention_context = ScheduleContext(segments["attn0-control"][:1024].copy())
        _check_header(self.control, self.rank, self.welcome.instance_id)
        self._descriptors = self.context.ffn_descriptors(self.window)
        self._result_flags = [self._attention_context.result_flags(each)
                              for each in self.attention_windows]
        row_bytes = -(-4 * M // _LINE_BYTES) * _LINE_BYTES
        rows = _words(self.control, _ACKNOWLEDGED, A * row_bytes // 4, np.int32)
        self._acknowledged = rows.reshape(A, row_bytes // 4)[:, :M]
        self._executions = _words(self.control, _ACKNOWLEDGED + A * row_bytes, A * M,
                                  np.uint64).reshape(A, M)
        self._progress = _words(self.control, _PROGRESS, 1, np.uint64)
        self._heartbeat = _words(self.control, _HEARTBEAT, _HEARTBEAT_WORDS, np.int32)
        self._heartbeat[:] = 0
        self._heartbeat[1] = os.getpid()
        metrics = segments[f"ffn{self.rank}-metrics"]
        self._counters = metrics[:_COUNTERS_END].view(np.uint64)
        # It starts to count; the trace goes on where its predecessor's ended.
        self._counters[:] = 0
        metrics[_HISTOGRAMS:_TRACE_HEAD] = metrics[_LANES:] = 0
        self.context.ffn.out_num = 0
        # Armed for good: a session rings with each publication, so none is missed (R9).
        _words(self.control, _DOORBELL_ARMED, 1, np.int32)[0] = 1

    def held_experts(self, num_routed: Sequence[int]) -> list[tuple[int, int, int]]:
        """(layer, expert, key) of what this rank computes.

        `num_routed`: the routed experts of each layer of the model, 0 for a dense one. The number
        behind the last routed expert is the layer's shared experts, as one; a dense layer is
        expert 0.
        """
        self._check_routed(num_routed)
        num_layers, num_experts = len(num_routed), self.context.common.expert_num
        layers = [(routed, num_experts - routed if routed > 0 else 1) for routed in num_routed]
        held = [(layer, expert, local) for layer, experts in enumerate(self._places(layers))
                for expert, local in experts]
        if not held:
            raise FailedPrecondition(f"rank {self.rank} holds no expert", "rank")
        num_local = max(local for _, _, local in held) + 1
        self._num_keys, self._num_layers = num_local * num_layers, num_layers
        self._is_held = np.zeros((num_layers, num_local), bool)
        for layer, _, local in held:
            self._is_held[layer, local] = True
        return [(layer, expert, layer * num_local + local) for layer, expert, local in held]

    def _check_routed(self, num_routed: Sequence[int]) -> None:
        num_experts = self.context.common.expert_num
        # With the shared experts on this side they have a place behind the routed ones.
        has_shared = self.welcome.geometry.shared_experts == _SHARED_EXPERTS_FFN
        allowed = [0, num_experts] + ([num_experts - 1] if has_shared else [])
        for layer, routed in enumerate(num_routed):
            if routed not in allowed:
                raise InvalidArgument(
                    f"num_routed is {routed} for layer {layer}; a layer of this instance has "
                    f"{' or '.join(str(each) for each in allowed[1:])} routed experts, or 0 if it "
                    "is dense", "num_routed")
        num_listed = len(self.welcome.experts.num_replicas)
        num_given = sum(num_experts if routed > 0 else 1 for routed in num_routed)
        if self.welcome.HasField("experts") and num_given != num_listed:
            raise InvalidArgument(f"num_routed has {len(num_routed)} layers with {num_given} "
                                  f"experts; the placement of this instance has {num_listed}",
                                  "num_routed")

    def _places(self, layers) -> Iterator[list[tuple[int, int]]]:
        """Of each (routed, replicated): (expert, local id) here, by the rules of
        schedule/dispatch/expert_placement.h."""
        num_ranks = self.welcome.geometry.num_ffn_workers
        replicas, ranks = iter(self.welcome.experts.num_replicas), iter(self.welcome.experts.ranks)
        for routed, replicated in layers:
            if self.welcome.HasField("experts"):
                here = [expert for expert in range(routed + replicated)
                        if self.rank in [next(ranks) for _ in range(next(replicas))]]
                yield list(zip(here, range(len(here))))
            else:
                behind = -(-routed // num_ranks)
                yield ([(expert, expert // num_ranks)
                        for expert in range(self.rank, routed, num_ranks)] +
                       [(routed + each, behind + each) for each in range(replicated)])

    def ready(self) -> None:
        """afdd may send sequences that need this worker. After held_experts()."""
        if self._is_held.size == 0:
            raise FailedPrecondition("this worker does not know its experts yet; call "
                                     "held_experts() and load their weights before", "")
        # What nobody wants from here any more (R12). A Ready of the past may have made it old.
        for each in self._channel.ask_voided():
            if int(self._descriptors[each.session, each.micro_batch, 0]) == each.round:
                self._acknowledged[each.session, each.micro_batch] = each.round
        self._channel.send(ready={"numeric_class": self.welcome.numeric_class,
                                  "model_identity": self.welcome.model_identity})
        # A predecessor may have died between its flag and its ring.
        self._ring(range(self._sizes[0]))

    def batches(self, hidden_size: int) -> Iterator[Batch]:
        """What the sessions send, until afdd ends this worker or run_flag is 0.

        A batch is acknowledged when the next is asked for: everything must be given back by then.
        """
        is_idle = False
        while self.context.control.run_flag and self._take_commands(is_idle):
            taken = self._take()
            is_idle = not taken
            self._beat(_IDLE if is_idle else _COMPUTING)
            if is_idle:
                continue
            batch = self._gather(taken, hidden_size)
            if batch.groups:
                yield batch
            self._acknowledge(taken)

    def give_back(self, batch: Batch, rows) -> None:
        """bf16 [rows, H], the results of batch.x in its order, into the windows of their sessions.

        Errors: InvalidArgument: rows of another shape or type; nothing has been given back.
        """
        view = _native.view_of("rows", rows)
        bits = _bits_of(view, batch.x.shape)
        places = np.array([batch.session_ids, batch.micro_batch_ids, batch.token_ids,
                           batch.expert_offsets]).T
        # What a predecessor gave back may be being read (R3).
        open_rows = [i for i, (session, m, token, k) in enumerate(places)
                     if self._result_flags[session][m, token, k] != batch.rounds[session, m]]
        if len(open_rows) < len(places):
            bits, places = bits[open_rows], places[open_rows]
        if len(places) > 0:
            session_ids, m, tokens, k = (np.ascontiguousarray(each) for each in places.T)
            _OPERATORS["ffn_to_attention"](
                self._attention_context, self.attention_windows, bits.view(BFloat16), session_ids,
                m, tokens, k, rounds=batch.rounds, token_dtype=1)
            self._counters[[_TOKENS, _ROWS]] += np.uint64(len(places))

    def __enter__(self) -> "FfnWorker":
        return self

    def __exit__(self, _kind, error, _trace) -> None:
        if error is None:
            self._channel.close()
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Tells afdd why this worker cannot go on."""
        try:
            self._channel.send(fatal={"code": 5, "message": f"{type(error).__name__}: {error}"})
        except Error:
            pass  # It is gone.
        self._channel.abandon()

    def _take_commands(self, waits: bool) -> bool:
        readable = readable_of([self._channel.fileno(), self._doorbell],
                               _TICK_SECONDS if waits else 0)
        if self._doorbell in readable:
            os.read(self._doorbell, 8)  # Before the look at the flags, or a ring would be lost.
        if self._channel.fileno() in readable:
            self._channel.take()
        return not self._channel.is_shut_down

    def _take(self) -> list[tuple[int, int, int]]:
        """(session, micro-batch, round) of the next pass, in the lists for FfnWorkerBatching."""
        A, M = self._sizes
        first = int(self.context.ffn.polling_index)
        found: list[tuple[int, int, int]] = []
        for session in range(A):
            for m in ((first + i) % M for i in range(M)):
                flag = int(self._descriptors[session, m, 0])
                if flag == 0 or int(self._acknowledged[session, m]) in (flag, -flag):
                    continue
                if self._list(session, m, flag, len(found)):
                    found.append((session, m, flag))
                    break
        # What a predecessor may have died of is executed alone (R11).
        suspects = [each for each in found if self._num_unfinished(*each) > 0]
        if suspects and len(found) > 1:
            found = suspects[:1] if self._list(*suspects[0], 0) else []
        self.context.ffn.out_num = len(found)
        if found:
            self.context.ffn.polling_index = (found[-1][1] + 1) % M
        for session, m, number in found:
            self._executions[session, m] = number << 32 | (
                self._num_unfinished(session, m, number) + 1)
        return found

    def _list(self, session: int, m: int, number: int, index: int) -> bool:
        """Copies a descriptor into place `index` of the lists; False: it was refused."""
        words = self._descriptors[session, m].copy()  # One copy, and nothing but it (R2).
        layer, ids = int(words[1]), words[2:]
        if number < 0:  # No round, so there is no slot that a mark could belong to.
            self._acknowledged[session, m] = number
            return False
        is_local = (ids >= 0) & (ids < self._is_held.shape[1])
        if not 0 <= layer < self._num_layers or (
                self._num_unfinished(session, m, number) >= _DEADLY):
            flags = self._result_flags[session][m].reshape(-1)
            flags[is_local & (flags != number)] = -number  # R3
            self._acknowledged[session, m] = number
            self._ring([session])
            return False
        is_local[is_local] = self._is_held[layer, ids[is_local]]
        f = self.context.ffn
        for offset, value in ((f.layer_ids_buf, layer), (f.session_ids_buf, session),
                              (f.micro_batch_ids_buf, m)):
            self.control[offset + 4 * index:offset + 4 * index + 4].view(np.int32)[0] = value
        begin = f.expert_ids_buf + 4 * len(ids) * index
        self.control[begin:begin + 4 * len(ids)].view(np.int32)[:] = np.where(
            is_local, ids, MASKED_ID)
        return True

    def _gather(self, taken, hidden_size: int) -> Batch:
        sizes = self.context.common
        A, M = self._sizes
        got = _OPERATORS["ffn_worker_batching"](
            self.context, self.window, self.control, expert_num=self._num_keys,
            layer_num=self._num_layers, token_dtype=1, max_out_shape=[
                A, sizes.micro_batch_size, sizes.selected_expert_num, hidden_size])
        count = int(got.actual_token_num[0])
        rounds = np.ones((A, M), np.int32)
        for session, m, number in taken:
            rounds[session, m] = number
        groups = [(int(key), int(rows)) for key, rows in got.group_list if rows > 0]
        return Batch(got.y[:count], groups, got.session_ids[:count], got.micro_batch_ids[:count],
                     got.token_ids[:count], got.expert_offsets[:count], rounds)

    def _acknowledge(self, taken) -> None:
        self.context.ffn.out_num = 0
        self._counters[_ROUNDS] += np.uint64(len(taken))
        self._counters[_PASSES] += np.uint64(1)
        for session, m, number in taken:
            self._executions[session, m] = 0
            self._acknowledged[session, m] = number
        self._ring({session for session, _, _ in taken})

    def _num_unfinished(self, session: int, m: int, number: int) -> int:
        word = int(self._executions[session, m])
        return word & 0xffffffff if word >> 32 == number else 0

    def _ring(self, sessions) -> None:
        # In any case: a look at whether the session sleeps would have to be ordered behind the
        # stores before it, and NumPy's loads are not. A write to an eventfd is.
        for session in sessions:
            try:
                os.write(self._session_doorbells[session], struct.pack("<Q", 1))
            except BlockingIOError:
                pass  # A full counter is a ring already.

    def _beat(self, state: int) -> None:
        self._progress[0] += 1
        if self._heartbeat[2] != state:
            self._heartbeat[0] += 1  # Odd while it is written.
            self._heartbeat[2] = state
            self._heartbeat[0] += 1


def _words(segment: np.ndarray, offset: int, number: int, dtype) -> np.ndarray:
    """`number` words of a segment, from a byte on."""
    return segment[offset:offset + number * np.dtype(dtype).itemsize].view(dtype)


def _bits_of(view: _native.TensorView, shape: tuple[int, ...]) -> np.ndarray:
    """uint16 of bf16 rows, contiguous; over their memory, which `view` keeps, if that is."""
    if DTYPES[view.dtype] != "bf16" or tuple(view.shape) != tuple(shape):
        raise InvalidArgument(f"rows is {DTYPES[view.dtype]} {list(view.shape)}; it must be bf16 "
                              f"{list(shape)}, a result for each row of batch.x", "rows")
    return np.ascontiguousarray(np.ndarray(
        shape, np.uint16, bytes_of(view), strides=[2 * each for each in view.strides]))


def _check_welcome(welcome) -> None:
    """What this class does not do, by the option of afdd that asks for it."""
    geometry = welcome.geometry
    for is_asked, option in ((geometry.router != 1, "--router attention"),
                             (geometry.row_dtype != 1, "--dispatch-dtype bf16"),
                             (geometry.row_checksums, "--row-checksums false"),
                             (welcome.HasField("ucx"), "--transport shared_memory"),
                             (welcome.prefill_tokens_max > 0, "--dispatch window")):
        if is_asked:
            raise FailedPrecondition(f"a worker in Python needs an afdd with {option}", "instance")


def _check_header(control: np.ndarray, rank: int, instance_id: int) -> None:
    """The segment header of docs/wire.md."""
    found = struct.unpack("<8sIIIIQ", control[1024:1056].tobytes())
    expected = (b"AFDSEGM1", _LAYOUT_VERSION, 512, 1, rank, instance_id)
    if found != expected:
        raise FailedPrecondition(f"the control segment's header begins with {found}; expected is "
                                 f"{expected}: afdd is of another version", "instance")
