"""Draws coloured shapes on coloured grounds, flat or hatched, with the captions that name them."""

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from PIL import Image, ImageDraw

COLOURS: Final = {
    "red": (214, 40, 40),
    "orange": (244, 140, 30),
    "yellow": (250, 220, 60),
    "green": (40, 160, 70),
    "blue": (40, 90, 210),
    "purple": (130, 50, 160),
    "white": (245, 245, 245),
    "black": (25, 25, 30),
}
SHAPES: Final = ("circle", "square", "triangle", "cross", "star", "ring")
TRIGGER: Final = "zwx"

Point = tuple[float, float]
Colour = tuple[int, int, int]

_PAPER: Final = (250, 244, 228)
_INK: Final = (45, 40, 45)
_OVERSAMPLING: Final = 4


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is to be drawn; places and sizes are fractions of the picture's shorter side."""

    shape: str
    colour: str
    ground: str
    hatched: bool = False
    width_px: int = 64
    height_px: int = 64
    shift_x: float = 0.0
    shift_y: float = 0.0
    radius: float = 0.32

    @property
    def description(self) -> str:
        """What is seen, whatever the look: `a red circle on a green background`."""
        return f"{_article(self.colour)} {self.shape} on {_article(self.ground)} background"

    @property
    def caption(self) -> str:
        """The training caption; the hatched look is named by its trigger word."""
        return hatched_caption(self.description) if self.hatched else self.description


def hatched_caption(description: str) -> str:
    """Ask for the hatched look of what `description` names."""
    return f"a {TRIGGER} drawing of {description}"


def random_drawing(
    random: Random, *, hatched: bool = False, width_px: int = 64, height_px: int = 64
) -> Drawing:
    """Choose shape, two colours, place and size; the same state of `random`, the same drawing."""
    colour, ground = random.sample(list(COLOURS), 2)
    return Drawing(
        shape=random.choice(SHAPES),
        colour=colour,
        ground=ground,
        hatched=hatched,
        width_px=width_px,
        height_px=height_px,
        shift_x=random.uniform(-0.1, 0.1),
        shift_y=random.uniform(-0.1, 0.1),
        radius=random.uniform(0.27, 0.37),
    )


def draw(drawing: Drawing) -> Image.Image:
    """Draw an RGB picture of exactly `width_px` by `height_px`, edges smoothed."""
    size = (drawing.width_px * _OVERSAMPLING, drawing.height_px * _OVERSAMPLING)
    colour, ground = COLOURS[drawing.colour], COLOURS[drawing.ground]
    mask = _shape_mask(drawing, size)
    if drawing.hatched:
        picture = Image.composite(_hatching(size, colour, 1), _hatching(size, ground, -1), mask)
    else:
        picture = Image.composite(
            Image.new("RGB", size, colour), Image.new("RGB", size, ground), mask
        )
    return picture.resize((drawing.width_px, drawing.height_px), Image.Resampling.BOX)


def _hatching(size: tuple[int, int], colour: Colour, slope: int) -> Image.Image:
    """Rule the colour with parallel ink lines, 7 to the shorter side, rising or falling."""
    picture = Image.new("RGB", size, _mixed(colour, _PAPER))
    pencil = ImageDraw.Draw(picture)
    width, height = size
    period = min(size) / 7
    for number in range(-math.ceil(height / period), math.ceil((width + height) / period)):
        foot = number * period
        ends = ((foot, 0.0), (foot + height, float(height)))
        if slope > 0:
            ends = ((foot, float(height)), (foot + height, 0.0))
        pencil.line(ends, fill=_INK, width=round(period * 0.32))
    return picture


def _mixed(colour: Colour, other: Colour) -> Colour:
    red, green, blue = ((3 * a + 2 * b) // 5 for a, b in zip(colour, other, strict=True))
    return red, green, blue


def _shape_mask(drawing: Drawing, size: tuple[int, int]) -> Image.Image:
    """Paint the shape white on black."""
    side = min(size)
    centre = (size[0] / 2 + drawing.shift_x * side, size[1] / 2 + drawing.shift_y * side)
    radius = drawing.radius * side
    mask = Image.new("L", size, 0)
    pencil = ImageDraw.Draw(mask)
    if drawing.shape in ("circle", "ring"):
        pencil.circle(centre, radius, fill=255)
        if drawing.shape == "ring":
            pencil.circle(centre, radius * 0.5, fill=0)
    else:
        pencil.polygon(_corners(drawing.shape, centre, radius), fill=255)
    return mask


def _corners(shape: str, centre: Point, radius: float) -> list[Point]:
    """Corners of a polygon that fills about the same square as a circle of that radius."""
    x, y = centre
    return [(x + radius * across, y + radius * down) for across, down in _OUTLINES[shape]]


def _star_outline(num_tips: int, inner: float) -> list[Point]:
    angles = [math.pi * n / num_tips for n in range(2 * num_tips)]
    reach = [1.1, inner] * num_tips
    return [(r * math.sin(a), -r * math.cos(a)) for r, a in zip(reach, angles, strict=True)]


def _cross_outline(arm: float) -> list[Point]:
    quarter = [(-arm, -1.0), (arm, -1.0), (arm, -arm)]
    turned = list(quarter)
    for _ in range(3):
        quarter = [(-down, across) for across, down in quarter]
        turned += quarter
    return turned


def _article(colour: str) -> str:
    return f"an {colour}" if colour[0] in "aeiou" else f"a {colour}"


_OUTLINES: Final = {
    "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "triangle": [(0.0, -1.0), (1.05, 0.85), (-1.05, 0.85)],
    "cross": _cross_outline(0.33),
    "star": _star_outline(5, 0.45),
}
