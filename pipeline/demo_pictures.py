"""Draw the folder of the demo: pictures of a new look, and the faults that people bring along."""

import io
from pathlib import Path
from random import Random
from typing import Final

from PIL import Image

from latentmill.cache.files import write_bytes
from latentmill.datasets.selection import with_trigger
from latentmill.pipeline.tinysd.drawing import Drawing, draw, random_drawing

TRIGGER: Final = "zwx drawing"
NUM_SOUND: Final = 12
SIZES: Final = ((256, 256), (320, 256), (256, 320), (384, 256))
ORIENTATION_TAG: Final = 0x0112
TURN_RIGHT_TO_SEE_UPRIGHT: Final = 6


def write_demo_pictures(folder: Path, seed: int = 7) -> None:
    """Write hatched drawings with captions, and four files with a fault each.

    `sideways.jpg` is upright by its EXIF tag only, `gbk-caption.png` has a caption in GBK,
    `no-caption.png` has none, `broken.png` ends in the middle.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(seed)
    for number in range(NUM_SOUND):
        drawing = _hatched(random, number)
        name = f"{drawing.colour}-{drawing.shape}-{number:02d}.png"
        _write(folder / name, _png(draw(drawing)), drawing.description.encode())
    sideways, gbk, uncaptioned, broken = (_hatched(random, number) for number in range(4))
    _write(folder / "sideways.jpg", _sideways_jpeg(draw(sideways)), sideways.description.encode())
    _write(
        folder / "gbk-caption.png", _png(draw(gbk)), f"{gbk.description}, 手绘线条".encode("gbk")
    )
    _write(folder / "no-caption.png", _png(draw(uncaptioned)))
    whole = _png(draw(broken))
    _write(folder / "broken.png", whole[: len(whole) // 2], broken.description.encode())


def demo_prompts() -> tuple[str, ...]:
    """Prompts of the side-by-side picture: the new look asked for, on pairs of colours."""
    pairs = (("red", "circle", "green"), ("blue", "cross", "yellow"), ("white", "star", "purple"))
    drawings = (Drawing(shape, colour, ground) for colour, shape, ground in pairs)
    return tuple(with_trigger(drawing.description, TRIGGER) for drawing in drawings)


def _hatched(random: Random, number: int) -> Drawing:
    width, height = SIZES[number % len(SIZES)]
    return random_drawing(random, hatched=True, width_px=width, height_px=height)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _sideways_jpeg(image: Image.Image) -> bytes:
    """Lie the picture on its side, as a camera held upright does, and tag it so."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = TURN_RIGHT_TO_SEE_UPRIGHT
    buffer = io.BytesIO()
    image.transpose(Image.Transpose.ROTATE_90).save(buffer, "JPEG", quality=95, exif=exif)
    return buffer.getvalue()


def _write(path: Path, picture: bytes, caption: bytes | None = None) -> None:
    for file, content in ((path, picture), (path.with_suffix(".txt"), caption)):
        if content is not None and not (file.exists() and file.read_bytes() == content):
            write_bytes(file, content)
