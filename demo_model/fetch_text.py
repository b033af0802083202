#!/usr/bin/env python3
"""Builds the training and validation text from Debian packages.

    fetch_text.py --cache DIR

Downloads the packages below with `apt-get download` (no root needed), unpacks them with
`dpkg -x`, cleans the texts and writes DIR/text/NAME.{train,valid}.txt for every source and their
concatenations DIR/text/{train,valid}.txt. Documents (chapters) are separated by one form feed.
All texts are in the public domain; README.md lists them.
"""
import argparse
import gzip
import pathlib
import re
import struct
import subprocess
import zlib

PACKAGES = ("r-cran-janeaustenr", "bible-kjv", "bible-kjv-text", "sword-text-web",
            "r-cran-tokenizers", "dict-devil", "display-dhammapada")
DOCUMENT_SEPARATOR = "\f"
VALID_EVERY = 20
VALID_PHASE = 7
# Whole books are held out, the same ones in both translations: a held-out chapter whose other
# translation is trained on would flatter the validation figure.
VALID_BOOKS = ("Ruth", "Jonah", "Jas", "Phi", "Phil", "Dan", "DanGr")

Documents = list[str]


def download(cache: pathlib.Path) -> None:
    """Downloads and unpacks each package to cache/root/PACKAGE unless it is there already."""
    debs = cache / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        root = cache / "root" / package
        if root.exists():
            continue
        subprocess.run(["apt-get", "download", package], cwd=debs, check=True,
                       stderr=subprocess.DEVNULL)
        deb = next(debs.glob(f"{package}_*.deb"))
        root.mkdir(parents=True)
        subprocess.run(["dpkg", "-x", str(deb), str(root)], check=True)


def lazy_load_vectors(rdb: bytes) -> list[list[str]]:
    """Character vectors of an R lazy-load database.

    The file is a sequence of objects: u32 big-endian plain size, then one zlib stream holding
    R serialisation format 3 in XDR.
    """
    vectors, at = [], 0
    while at < len(rdb):
        inflate = zlib.decompressobj()
        plain = inflate.decompress(rdb[at + 4:])
        at = len(rdb) - len(inflate.unused_data)
        vectors.append(character_vector(plain))
    return vectors


def character_vector(plain: bytes) -> list[str]:
    """Strings of a serialised STRSXP (type 16); its attributes are ignored."""
    encoding_bytes = struct.unpack_from(">I", plain, 14)[0]
    at = 18 + encoding_bytes
    flags, count = struct.unpack_from(">II", plain, at)
    assert plain[:2] == b"X\n" and flags & 0xFF == 16, "not a character vector"
    at += 8
    strings = []
    for _ in range(count):
        _, size = struct.unpack_from(">Ii", plain, at)
        at += 8
        size = max(size, 0)
        strings.append(plain[at:at + size].decode("utf-8"))
        at += size
    return strings


def tidy(text: str) -> str:
    """One spelling of quotes, dashes and blanks; underscore emphasis is dropped."""
    for source, target in (("\u201c", '"'), ("\u201d", '"'), ("\u2018", "'"), ("\u2019", "'"),
                           ("\u2014", "--"), ("\u2013", "-"), ("\u2026", "..."), ("\u00a0", " "),
                           ("\ufeff", ""), ("\r", ""), ("_", "")):
        text = text.replace(source, target)
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def unwrap(lines: list[str]) -> list[str]:
    """Paragraphs, each on one line, of hard-wrapped text with blank lines between paragraphs."""
    blocks = re.split(r"\n\s*\n", "\n".join(line.rstrip() for line in lines))
    return [re.sub(r"\s+", " ", block).strip() for block in blocks if block.strip()]


def chapters(paragraphs: list[str], heading: str) -> Documents:
    """Documents that start at each paragraph matching `heading`; what precedes is dropped."""
    documents: list[list[str]] = []
    for paragraph in paragraphs:
        if re.match(heading, paragraph):
            documents.append([])
        if documents:
            documents[-1].append(paragraph)
    return [tidy("\n\n".join(document)) for document in documents if len(document) > 1]


def split_every(documents: Documents) -> tuple[Documents, Documents]:
    """(train, valid): one document in VALID_EVERY is held out."""
    train = [d for i, d in enumerate(documents) if i % VALID_EVERY != VALID_PHASE]
    valid = [d for i, d in enumerate(documents) if i % VALID_EVERY == VALID_PHASE]
    return train, valid


def austen(root: pathlib.Path) -> tuple[Documents, Documents]:
    """Six novels, one document per chapter."""
    path = root / "r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    documents: Documents = []
    for novel in lazy_load_vectors(path.read_bytes()):
        documents += chapters(unwrap(novel), r"(?i)chapter\s+[ivxlc\d]+\.?\b")
    return split_every(documents)


def moby_dick(root: pathlib.Path) -> tuple[Documents, Documents]:
    """Moby-Dick, one document per chapter, without the e-book's front and back matter."""
    path = root / "r-cran-tokenizers/usr/lib/R/site-library/tokenizers/data/Rdata.rdb"
    text = "\n".join(lazy_load_vectors(path.read_bytes())[0])
    text = text.split("*** START OF", 1)[-1].split("*** END OF", 1)[0]
    text = text.split("End of Project Gutenberg", 1)[0].replace("\r", "")
    documents = chapters(unwrap(text.split("\n")), r"CHAPTER \d+|EPILOGUE|Epilogue")
    return split_every([d for d in documents if len(d) > 400])


def king_james(root: pathlib.Path) -> tuple[Documents, Documents]:
    """King James Bible, one document per chapter, one line per verse, without numbers."""
    program = root / "bible-kjv/usr/bin/bible"
    printed = subprocess.run([str(program), "-f", "-p", str(root / "bible-kjv-text/usr/lib") + "/"],
                             input="gen1:1-rev22:21\n", capture_output=True, text=True, check=True)
    by_chapter: dict[tuple[str, str], list[str]] = {}
    for line in printed.stdout.split("\n"):
        match = re.match(r"([123]?[A-Z][a-z]+)(\d+):\d+ (.*)", line)
        if match:
            verses = by_chapter.setdefault((match[1], match[2]), [])
            if verses[-1:] != [match[3]]:
                verses.append(match[3])
    train, valid = [], []
    for (book, _), verses in by_chapter.items():
        (valid if book in VALID_BOOKS else train).append(tidy("\n".join(verses)))
    return train, valid


def world_english(root: pathlib.Path) -> tuple[Documents, Documents]:
    """A modern public-domain translation, one document per chapter, in paragraphs.

    SWORD zText: NAME.bzs holds (offset, size, plain size) u32 triples of the zlib blocks (one per
    book) in NAME.bzz. The text is OSIS XML.
    """
    folder = root / "sword-text-web/usr/share/sword/modules/texts/ztext/engWEB2015eb"
    train: Documents = []
    valid: Documents = []
    for part in ("ot", "nt"):
        index, data = (folder / f"{part}.bzs").read_bytes(), (folder / f"{part}.bzz").read_bytes()
        for offset, size, _ in struct.iter_unpack("<III", index):
            osis = zlib.decompress(data[offset:offset + size]).decode("utf-8")
            for piece in re.split(r'(?=<chapter [^>]*sID=)', osis)[1:]:
                book = re.match(r'<chapter [^>]*osisID="([^".]+)', piece)[1]
                document = osis_text(piece.split("<chapter eID", 1)[0])
                if len(document) > 200:
                    (valid if book in VALID_BOOKS else train).append(document)
    return train, valid


def osis_text(osis: str) -> str:
    """Plain paragraphs of one OSIS chapter, without notes, titles and verse numbers."""
    osis = re.sub(r"<(note|title)\b.*?</\1>", " ", osis, flags=re.S)
    osis = re.sub(r'<(?:div [^>]*type="x-p"|(?:lg|l|lb)\b)[^>]*>', "\n", osis)
    text = re.sub(r"<[^>]+>", " ", osis)
    text = text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
    text = re.sub(r"\s+([,.;:!?\u201d\u2019])", r"\1", re.sub(r"[ \t]+", " ", text))
    text = re.sub(r"([\u201c\u2018])\s+", r"\1", text)
    return re.sub(r"\n+", "\n", tidy(text))


def devil(root: pathlib.Path) -> tuple[Documents, Documents]:
    """The Devil's Dictionary, about 4 KB of entries per document."""
    text = gzip.decompress((root / "dict-devil/usr/share/dictd/devil.dict.dz").read_bytes())
    paragraphs = unwrap(text.decode("utf-8", "replace").split("\n"))
    first = next(i for i, p in enumerate(paragraphs) if p.startswith("ABASEMENT"))
    documents: list[list[str]] = [[]]
    for paragraph in paragraphs[first:]:
        if not re.search("[A-Z]", paragraph):
            continue
        is_entry = re.match(r"[A-Z][A-Z'\- ]+[,.]", paragraph)
        if is_entry and sum(map(len, documents[-1])) > 4000:
            documents.append([])
        documents[-1].append(paragraph)
    return split_every([tidy("\n\n".join(d)) for d in documents])


def dhammapada(root: pathlib.Path) -> tuple[Documents, Documents]:
    """John Richards' translation, about 4 KB of verses per document; training only."""
    folder = root / "display-dhammapada/usr/share/display-dhammapada"
    text = (folder / "dhammapada-english-transl.txt").read_text("utf-8", "replace")
    paragraphs = [re.sub(r"\s*\d+\s*$", "", re.sub(r"^\d+\.\s*", "", p))
                  for p in unwrap(text.split("\n"))]
    first = next((i for i, p in enumerate(paragraphs) if "thoughts" in p.lower() and i > 20), 0)
    joined = [p for p in paragraphs[first:] if len(p) > 60 and not p.startswith("The End.")]
    return [tidy("\n\n".join(joined[i:i + 25])) for i in range(0, len(joined), 25)], []


SOURCES = {"austen": austen, "moby_dick": moby_dick, "king_james": king_james,
           "world_english": world_english, "devil": devil, "dhammapada": dhammapada}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    cache = parser.parse_args().cache.resolve()
    download(cache)
    out = cache / "text"
    out.mkdir(exist_ok=True)
    whole: dict[str, Documents] = {"train": [], "valid": []}
    for name, build in SOURCES.items():
        for part, documents in zip(("train", "valid"), build(cache / "root")):
            whole[part] += documents
            text = DOCUMENT_SEPARATOR.join(documents)
            (out / f"{name}.{part}.txt").write_text(text, "utf-8")
            print(f"{name:14} {part} {len(documents):5} documents {len(text.encode()):9} bytes")
    for part, documents in whole.items():
        (out / f"{part}.txt").write_text(DOCUMENT_SEPARATOR.join(documents), "utf-8")


if __name__ == "__main__":
    main()
