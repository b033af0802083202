#!/usr/bin/env python3
"""Writes prompts.txt and valid_sample.txt from the validation text.

    make_prompts.py --text DIR/text

prompts.txt: 200 prompts, one a line, 3 to 150 words from a sentence's start, for load generators.
valid_sample.txt: about 64 KB of whole paragraphs, documents separated by a blank line, for
perplexity checks. Both are the same on every run.
"""
import argparse
import pathlib
import random
import re

HERE = pathlib.Path(__file__).resolve().parent
PROMPTS = {"austen": 90, "moby_dick": 30, "king_james": 30, "world_english": 40, "devil": 10}
SAMPLE_BYTES = {"austen": 28000, "moby_dick": 12000, "king_james": 9000, "world_english": 12000,
                "devil": 4500}
WORDS_MIN, WORDS_MAX = 3, 150


def documents(text: pathlib.Path, source: str) -> list[str]:
    return (text / f"{source}.valid.txt").read_text("utf-8").split("\f")


def prompt(document: str, words_wanted: int, rng: random.Random) -> str:
    """`words_wanted` words from the start of a random sentence, on one line."""
    words = document.split()
    starts = [i for i in range(1, max(2, len(words) - words_wanted))
              if re.search(r'[.!?]"?$', words[i - 1]) and words[i][0].isupper()]
    begin = rng.choice(starts or [0])
    return " ".join(words[begin:begin + words_wanted])


def prompts(text: pathlib.Path, rng: random.Random) -> list[str]:
    """Lengths are log-uniform, so that short prompts are as common as long ones."""
    lines = []
    for source, count in PROMPTS.items():
        texts = documents(text, source)
        for _ in range(count):
            words = round(WORDS_MIN * (WORDS_MAX / WORDS_MIN) ** rng.random())
            lines.append(prompt(rng.choice(texts), words, rng))
    rng.shuffle(lines)
    return lines


def whole_paragraphs(document: str, size: int) -> str:
    """Paragraphs from the document's start until `size` bytes are reached or passed."""
    end = document.find("\n", size)
    return (document if end < 0 else document[:end]).strip()


def sample(text: pathlib.Path) -> str:
    """The first paragraphs of the held-out documents, source by source."""
    parts = []
    for source, left in SAMPLE_BYTES.items():
        texts = documents(text, source)
        for index, document in enumerate(texts):
            if left <= 0:
                break
            part = whole_paragraphs(document, left // (len(texts) - index))
            left -= len(part.encode())
            parts.append(part)
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    text = parser.parse_args().text
    lines = prompts(text, random.Random(1))
    (HERE / "prompts.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (HERE / "valid_sample.txt").write_text(sample(text), "utf-8")


if __name__ == "__main__":
    main()
