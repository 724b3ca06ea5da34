import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps
from tests.test_measures import photograph, saved

from latentmill.datasets.images import pixel_hash
from latentmill.datasets.measures import SIDES_PX, measure, reduced
from latentmill.datasets.records import Record
from latentmill.stages.checking.duplicates import Candidate, Group, find_groups


def candidate(name: str, image: Image.Image, quality: int = 0) -> Candidate:
    record = Record(f"id-{name}", 0, name, f"/{name}", 1, 1, "", *image.size, pixel_hash(image))
    return Candidate(record, name, measure(image, reduced(image, SIDES_PX[-1]), quality))


def told(groups: tuple[Group, ...]) -> list[list[tuple[str, str]]]:
    return [[(one.path, one.relation) for one in group.members] for group in groups]


def test_copies_are_grouped_around_the_better_one() -> None:
    image = photograph()
    pictures = [
        candidate("small", image.resize((256, 192))),
        candidate("mirror", ImageOps.mirror(image.resize((300, 225)))),
        candidate("best", image),
        candidate("pressed", saved(image, 30), 30),
        candidate("again", image.copy()),
        candidate("other", photograph(seed=8)),
    ]
    groups = find_groups(pictures, 8)
    assert told(groups) == [
        [
            ("best", "best"),
            ("again", "same-pixels"),
            ("pressed", "near"),
            ("mirror", "mirrored"),
            ("small", "near"),
        ]
    ]
    (group,) = groups
    assert group.id == "id-best"
    said = {one.path: one.message for one in group.members}
    assert "less compressed: quality 100, not 30" in said["pressed"]
    assert "larger: 512 x 384 px, not 256 x 192 px" in said["small"]
    assert said["mirror"].startswith("Mirrored")
    assert said["again"] == "The same pixels as best (group id-best)"
    assert all("group id-best" in one.message for one in group.members[1:])


def test_the_sharper_of_two_equal_sizes_is_the_better() -> None:
    image = photograph()
    soft = image.resize((300, 225), Image.Resampling.BOX).resize(image.size)
    (group,) = find_groups([candidate("soft", soft), candidate("sharp", image)], 8)
    assert [one.path for one in group.members] == ["sharp", "soft"]
    assert group.members[1].message.endswith("which is sharper")


@pytest.mark.parametrize("level", [0, 127, 255])
def test_pictures_without_features_do_not_collapse_into_one_group(level: int) -> None:
    pictures = []
    for number in range(6):
        image = Image.new("RGB", (128, 128), (level, level, level))
        image.putpixel((number, 3), (90, 90, 90))
        pictures.append(candidate(str(number), image))
    assert find_groups(pictures, 8) == ()


def test_the_same_drawing_in_other_colours_is_another_picture() -> None:
    image = photograph()
    red, green, blue = image.split()
    assert find_groups(
        [candidate("a", image), candidate("b", image.convert("L").convert("RGB"))], 8
    )
    recoloured = Image.merge("RGB", (ImageOps.invert(blue), green, ImageOps.invert(red)))
    assert find_groups([candidate("a", image), candidate("b", recoloured)], 8) == ()


def test_the_distance_decides() -> None:
    image = photograph()
    cropped = image.crop((12, 10, 500, 374))
    pictures = [candidate("a", image), candidate("b", cropped)]
    (group,) = find_groups(pictures, 24)
    distance = group.members[1].distance
    assert distance > 0
    assert find_groups(pictures, distance)
    assert find_groups(pictures, distance - 1) == ()


def test_different_pictures_are_no_copies() -> None:
    pictures = [candidate(str(seed), photograph((320, 240), seed)) for seed in range(12)]
    assert find_groups(pictures, 8) == ()


def test_the_order_of_files_decides_nothing_but_a_tie() -> None:
    image = photograph()
    pictures = [candidate("a", image), candidate("b", saved(image, 50), 50), candidate("c", image)]
    forwards, backwards = find_groups(pictures, 8), find_groups(pictures[::-1], 8)
    assert {one.path for one in forwards[0].members} == {one.path for one in backwards[0].members}
    assert forwards[0].members[0].path == "a"


def test_no_picture_gives_no_group() -> None:
    assert find_groups([], 8) == ()


def slide(title: str, *lines: str) -> Image.Image:
    image = Image.new("RGB", (960, 720), "white")
    draw = ImageDraw.Draw(image)
    draw.text((60, 40), title, fill="navy", font=ImageFont.load_default(40))
    for number, line in enumerate(lines):
        place = (80, 150 + 70 * number)
        draw.text(place, f"- {line}", fill="black", font=ImageFont.load_default(28))
    return image


def test_slides_of_one_layout_are_no_copies() -> None:
    slides = [
        slide("Intro", "We begin", "with data", "and models"),
        slide("Methods", "We train", "a network", "on pictures"),
        slide("Results", "It works", "mostly fine", "sometimes not"),
        slide("Outlook", "More data", "fewer bugs", "and so on"),
        slide("Thanks", "to all", "who helped", "us here"),
    ]
    pictures = [candidate(str(number), image) for number, image in enumerate(slides)]
    assert find_groups(pictures, 8) == ()
    smaller = candidate("copy", slides[0].resize((640, 480), Image.Resampling.LANCZOS))
    (group,) = find_groups([*pictures, smaller], 8)
    assert [one.path for one in group.members] == ["0", "copy"]


def test_a_much_darker_copy_is_a_copy() -> None:
    image = photograph()
    dark = image.point([value // 6 for value in range(256)] * 3)
    (group,) = find_groups([candidate("dark", dark), candidate("light", image)], 8)
    assert {one.path for one in group.members} == {"dark", "light"}
