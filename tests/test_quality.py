import pytest

from latentmill.datasets.borders import Borders
from latentmill.datasets.exposure import Exposure
from latentmill.datasets.likeness import Likeness
from latentmill.datasets.measures import Measures
from latentmill.stages.checking.decoded import Decoded
from latentmill.stages.checking.findings import FINDINGS
from latentmill.stages.checking.quality import quality_messages
from latentmill.stages.settings import ValidateSettings

GOOD = Likeness("0" * 16, "0" * 16, "", 50.0)


def messages(
    size: tuple[int, int] = (600, 500),
    edges: tuple[float, float] = (0.4, 0.4),
    exposure: Exposure = Exposure(5, 240, 0.0),  # noqa: B008 - frozen
    borders: Borders = Borders(),  # noqa: B008 - frozen
    blocks: float = 0.0,
    quality: int = 0,
    **settings: float,
) -> dict[str, str]:
    measures = Measures(edges, exposure, borders, blocks, quality, GOOD)
    seen = Decoded("/a.jpg", 1, 1, "", "JPEG", *size, "", measures=measures)
    return quality_messages(seen, ValidateSettings(**settings))  # type: ignore[arg-type]


def test_a_good_picture_has_no_warning() -> None:
    assert messages() == {}


def test_a_small_picture_says_how_much_it_would_be_enlarged() -> None:
    assert "enlarged 2 times to train at 512 px" in messages((256, 256))["upscaled"]
    assert messages((256, 256), target_side=256) == {}
    assert messages((500, 500)) == {}
    assert "upscaled" in messages((500, 500), max_upscale=1)


def test_blur_is_judged_at_the_size_trained_at() -> None:
    assert "1.8 px at 512 px" in messages(edges=(1.8, 3.0))["blurred"]
    assert messages(edges=(1.8, 3.0), target_side=256) == {}
    assert "3.0 px at 1024 px" in messages((2000, 2000), (1.0, 3.0), target_side=1024)["blurred"]
    assert messages(edges=(1.8, 3.0), max_blur=2) == {}


def test_dark_and_bright_name_the_level() -> None:
    assert "level 41 of 255" in messages(exposure=Exposure(0, 41, 0.0))["dark"]
    assert "level 212 of 255" in messages(exposure=Exposure(212, 255, 0.0))["bright"]
    assert "55% of the picture is burnt out" in messages(exposure=Exposure(9, 255, 0.55))["bright"]
    assert messages(exposure=Exposure(0, 41, 0.0), dark_level=40) == {}


def test_compression_is_told_by_the_file_or_by_its_blocks() -> None:
    assert "quality 12 of 100" in messages(quality=12)["jpeg-artefacts"]
    assert "30% of the edges" in messages(blocks=0.3)["jpeg-artefacts"]
    assert messages(quality=39, min_jpeg_quality=30) == {}
    assert messages((4000, 3000), quality=12, blocks=0.3) == {}


def test_borders_are_told_in_px_by_side() -> None:
    found = messages(borders=Borders(0, 60, 0, 64))["borders"]
    assert "top 60 px, bottom 64 px" in found
    assert "left" not in found
    assert messages(borders=Borders(0, 60, 0, 64), max_border=0.2) == {}


@pytest.mark.parametrize("code", ["upscaled", "blurred", "dark", "bright", "borders"])
def test_each_code_has_its_words(code: str) -> None:
    assert FINDINGS[code].level == "warning"
