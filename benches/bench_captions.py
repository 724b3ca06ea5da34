"""Captions in old encodings -> a table: how many are read right, asked about, silently wrong.

The generator's seed is pinned, so two runs print the same table. `--held-out` draws from words
that were never used while the decision was tuned; `--folders` sets how many are drawn a cell.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from caption_words import HELD_OUT, TUNED, words

from latentmill.datasets.captions import read_texts

SEED = 20_260_101
KINDS = (
    ("simplified", "gbk"),
    ("traditional", "big5hkscs"),
    ("traditional", "gbk"),
    ("Japanese", "cp932"),
    ("Japanese", "euc_jp"),
    ("Korean", "cp949"),
    ("Russian", "cp1251"),
    ("Russian", "koi8_r"),
    ("French", "cp1252"),
    ("German", "cp1252"),
    ("simplified", "utf-16-le"),
    ("Japanese", "utf-16-be"),
)
"""Languages and the encodings that they are saved in."""
TAGS = ((1, 1), (2, 4), (5, 10))
FOLDERS = (1, 5, 20, 100)
MIXES = ("pure", "half UTF-8", "two encodings")


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of folder."""

    language: str
    encoding: str
    tags: tuple[int, int]
    size: int
    mix: str


def cells() -> Iterator[Cell]:
    """Every kind of folder; one file cannot be mixed."""
    for language, encoding in KINDS:
        for tags in TAGS:
            for size in FOLDERS:
                for mix in MIXES if size > 1 else MIXES[:1]:
                    yield Cell(language, encoding, tags, size, mix)


def draw_folder(
    cell: Cell, lists: Mapping[str, str], chance: random.Random
) -> list[tuple[str, bytes]]:
    """Return truth and bytes of each caption file. All that is ASCII is drawn again."""
    other = chance.choice([kind for kind in KINDS if kind[1] != cell.encoding])
    folder = []
    for number in range(cell.size):
        language, encoding = cell.language, cell.encoding
        if cell.mix == "half UTF-8" and number % 2:
            encoding = "utf-8"
        if cell.mix == "two encodings" and number % 3 == 1:
            language, encoding = other
        text = _draw_caption(words(lists, language), cell.tags, chance)
        folder.append((text, text.encode(encoding)))
    return folder


def count_outcomes(folder: Sequence[tuple[str, bytes]]) -> Counter[str]:
    """Count `right`, `asked` and `wrong`; `asked right` if the first reading shown is right."""
    files = {f"{number}.txt": data for number, (_, data) in enumerate(folder)}
    counts: Counter[str] = Counter()
    for (truth, _), reading in zip(folder, read_texts(files).values(), strict=True):
        if reading.check:
            counts["asked"] += 1
            counts["asked right"] += reading.text == truth
        else:
            counts["right" if reading.text == truth else "wrong"] += 1
    return counts


def measure(
    lists: Mapping[str, str], num_folders: int, seed: int = SEED
) -> dict[Cell, Counter[str]]:
    """Draw that many folders of each kind, read them, count."""
    chance = random.Random(seed)
    table = {}
    for cell in cells():
        counts: Counter[str] = Counter()
        for _ in range(
            max(1, num_folders // (1 if cell.size < 20 else 4 if cell.size < 100 else 10))
        ):
            counts += count_outcomes(draw_folder(cell, lists, chance))
        table[cell] = counts
    return table


def _draw_caption(vocabulary: Sequence[str], tags: tuple[int, int], chance: random.Random) -> str:
    while True:
        drawn = chance.sample(vocabulary, chance.randint(*tags))
        text = ", ".join(drawn)
        if not text.isascii():
            return f"1girl, {text}" if tags[0] > 4 else text


def _print_table(table: Mapping[Cell, Counter[str]]) -> int:
    groups: dict[tuple[str, ...], Counter[str]] = {}
    for cell, counts in table.items():
        span = "-".join(map(str, sorted(set(cell.tags))))
        key = (f"{cell.language} {cell.encoding}", span, str(cell.size), cell.mix)
        groups.setdefault(key, Counter()).update(counts)
    print(
        f"{'captions':24}{'tags':>6}{'folder':>7}  {'mix':14}{'right':>8}{'asked':>8}{'wrong':>8}"
    )
    for key, counts in groups.items():
        print(f"{key[0]:24}{key[1]:>6}{key[2]:>7}  {key[3]:14}" + _shares(counts))
    print()
    for size in FOLDERS:
        for mix in MIXES:
            counts = sum((c for key, c in groups.items() if key[2:] == (str(size), mix)), Counter())
            if counts:
                print(f"{'all':24}{'all':>6}{size:>7}  {mix:14}" + _shares(counts))
    return sum(counts["wrong"] for cell, counts in table.items() if cell.size >= 5)


def _shares(counts: Counter[str]) -> str:
    total = counts["right"] + counts["asked"] + counts["wrong"]
    shares = (counts[name] / total for name in ("right", "asked", "wrong"))
    return "".join(f"{share:>8.1%}" for share in shares) + f"  ({counts['wrong']} of {total:,})"


def main() -> int:
    """Print the table and the time; 1 when a caption of a folder of 5 or more is silently wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--folders", type=int, default=20)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    began = time.perf_counter()
    table = measure(HELD_OUT if chosen.held_out else TUNED, chosen.folders, chosen.seed)
    wrong = _print_table(table)
    num = sum(sum(c[n] for n in ("right", "asked", "wrong")) for c in table.values())
    print(
        f"\n{num:,} captions in {time.perf_counter() - began:.1f} s; "
        f"silently wrong in folders of 5 and more: {wrong}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
