#!/usr/bin/env python3
"""Byte-level BPE: trainer, encoder, decoder and tokenizer.json writer.

    bpe.py train --text FILE --vocab-size N --out DIR
    bpe.py encode --tokenizer DIR/tokenizer.json < text

The split regex is written for engines with \\p{..} classes (PCRE2, Oniguruma). SPLIT_PYTHON is
the same expression for Python's `re`, which has no \\p: a letter is [^\\W\\d_], a number is \\d, and
the rest of the expression is spelled with these two.
"""
import argparse
import collections
import functools
import json
import pathlib
import re
import sys

BOS, EOS = "<|begin|>", "<|end|>"
SPLIT_HF = (r"\p{N}{1,3}| ?\p{L}+|'\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT_PYTHON = re.compile(
    r"\d{1,3}| ?[^\W\d_]+|'[^\W\d_]+| ?(?:_|[^\s\w])+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

Pair = tuple[str, str]


@functools.cache
def byte_to_char() -> dict[int, str]:
    """The customary printable stand-ins: printable bytes map to themselves, the other 68 to
    U+0100 and up in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in printable}
    others = (b for b in range(256) if b not in table)
    table.update({b: chr(0x100 + i) for i, b in enumerate(others)})
    return table


def to_chars(piece: str) -> str:
    """The byte stand-ins of one piece of text."""
    table = byte_to_char()
    return "".join(table[b] for b in piece.encode("utf-8"))


def split(text: str) -> list[str]:
    """Pieces of the pre-tokenizer; they concatenate to `text`."""
    pieces, at = [], 0
    for match in SPLIT_PYTHON.finditer(text):
        if match.start() > at:
            pieces.append(text[at:match.start()])
        pieces.append(match.group())
        at = match.end()
    return pieces + [text[at:]] if at < len(text) else pieces


def merge_word(word: list[str], pair: Pair) -> list[str]:
    """`word` with each occurrence of `pair`, from the left, joined."""
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def train(text: str, num_merges: int) -> list[Pair]:
    """The most frequent pair is merged `num_merges` times; of equal counts the greater pair.

    Works on distinct pieces with their counts; each merge revisits only the pieces that hold the
    pair.
    """
    counts = collections.Counter(split(text))
    words = [list(to_chars(piece)) for piece in counts]
    weight = list(counts.values())
    pair_counts: collections.Counter[Pair] = collections.Counter()
    holders: dict[Pair, set[int]] = collections.defaultdict(set)
    for i, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pair_counts[pair] += weight[i]
            holders[pair].add(i)
    merges: list[Pair] = []
    while len(merges) < num_merges:
        best = max(pair_counts, key=lambda pair: (pair_counts[pair], pair))
        merges.append(best)
        for i in holders.pop(best):
            for pair in zip(words[i], words[i][1:]):
                pair_counts[pair] -= weight[i]
            words[i] = merge_word(words[i], best)
            for pair in zip(words[i], words[i][1:]):
                pair_counts[pair] += weight[i]
                holders[pair].add(i)
        pair_counts.pop(best, None)
    return merges


def vocabulary(merges: list[Pair]) -> dict[str, int]:
    """Ids: the two specials, the 256 bytes in byte order, then the merges in rank order."""
    tokens = [BOS, EOS, *(byte_to_char()[b] for b in range(256)), *(a + b for a, b in merges)]
    assert len(set(tokens)) == len(tokens), "two merges give the same token"
    return {token: i for i, token in enumerate(tokens)}


def tokenizer_json(merges: list[Pair]) -> dict:
    """The tokenizer in the layout of the Hugging Face tokenizers library.

    The specials are in the vocabulary too: the library gives an added token that is not there a new
    id, behind the vocabulary.
    """
    ids = vocabulary(merges)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": ids[token], "content": token, **flags} for token in (BOS, EOS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT_HF}, "behavior": "Isolated",
             "invert": False}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": ids,
                  "merges": [f"{a} {b}" for a, b in merges]}}


class Tokenizer:
    """Encoder and decoder of a tokenizer.json written by this program."""

    def __init__(self, path: pathlib.Path) -> None:
        data = json.loads(path.read_text("utf-8"))
        self.ids = dict(data["model"]["vocab"])
        self.ids.update({t["content"]: t["id"] for t in data["added_tokens"]})
        self.tokens = {i: token for token, i in self.ids.items()}
        merges = (tuple(m.split(" ")) for m in data["model"]["merges"])
        self.rank = {pair: rank for rank, pair in enumerate(merges)}
        self.bos, self.eos = self.ids[BOS], self.ids[EOS]
        self.cache: dict[str, list[int]] = {}
        self.bytes = {c: b for b, c in byte_to_char().items()}

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; special tokens in it are not looked for."""
        return [i for piece in split(text) for i in self.encode_piece(piece)]

    def encode_piece(self, piece: str) -> list[int]:
        """Lowest-rank merges first, cached per piece."""
        if piece not in self.cache:
            word = list(to_chars(piece))
            while len(word) > 1:
                pair = min(zip(word, word[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
                if pair not in self.rank:
                    break
                word = merge_word(word, pair)
            self.cache[piece] = [self.ids[token] for token in word]
        return self.cache[piece]

    def decode(self, ids: list[int]) -> str:
        """Text of the ids, special tokens left out."""
        chars = "".join(self.tokens[i] for i in ids if i not in (self.bos, self.eos))
        return bytes(self.bytes[c] for c in chars).decode("utf-8", "replace")


def write_tokenizer(text: str, vocab_size: int, out: pathlib.Path) -> None:
    """Trains and writes tokenizer.json and tokenizer_config.json."""
    merges = train(text, vocab_size - 256 - 2)
    (out / "tokenizer.json").write_text(
        json.dumps(tokenizer_json(merges), ensure_ascii=False, indent=1) + "\n", "utf-8")
    config = {"add_bos_token": True, "add_eos_token": False, "bos_token": BOS, "eos_token": EOS,
              "clean_up_tokenization_spaces": False, "model_max_length": 1024,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("train", "encode"))
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.action == "train":
        text = arguments.text.read_text("utf-8")
        write_tokenizer(text, arguments.vocab_size, arguments.out)
    else:
        print(*Tokenizer(arguments.tokenizer).encode(sys.stdin.read()))


if __name__ == "__main__":
    main()
