"""What was measured of a picture -> the warnings that the limits of the settings make of it."""

from latentmill.datasets.measures import Measures
from latentmill.stages.checking.decoded import Decoded
from latentmill.stages.settings import BucketSettings, ValidateSettings

_BLOCKS_VANISH = 3.0  # Scaled down this far and more, blocks of 8 px are no larger than details.


def quality_messages(seen: Decoded, settings: ValidateSettings) -> dict[str, str]:
    """Return the codes of a decoded picture's quality, each with the number that triggered it."""
    target = settings.target_side or BucketSettings().area
    messages = {"upscaled": _upscaled(seen, target, settings)}
    if seen.measures is not None:
        messages["blurred"] = _blurred(seen.measures, target, settings)
        messages["dark"] = _dark(seen.measures, settings)
        messages["bright"] = _bright(seen.measures, settings)
        messages["borders"] = _borders(seen, seen.measures, settings)
        if (seen.width * seen.height) ** 0.5 < _BLOCKS_VANISH * target:
            messages["jpeg-artefacts"] = _artefacts(seen.measures, settings)
    return {code: message for code, message in messages.items() if message}


def _upscaled(seen: Decoded, target: int, settings: ValidateSettings) -> str:
    factor = target / (seen.width * seen.height) ** 0.5
    if factor <= settings.max_upscale:
        return ""
    size = f"{seen.width} x {seen.height} px"
    limit = f"`validate.max_upscale` is {settings.max_upscale:g}"
    return f"{size} would be enlarged {factor:.2g} times to train at {target} px ({limit})"


def _blurred(measures: Measures, target: int, settings: ValidateSettings) -> str:
    width = measures.edge_at(target)
    if width <= settings.max_blur:
        return ""
    limit = f"`validate.max_blur` is {settings.max_blur:g}"
    return f"Even the sharpest edges are blurred by {width:.1f} px at {target} px ({limit})"


def _dark(measures: Measures, settings: ValidateSettings) -> str:
    high = measures.exposure.high
    if high >= settings.dark_level:
        return ""
    limit = f"`validate.dark_level` is {settings.dark_level}"
    return f"99% of the picture is no brighter than level {high} of 255 ({limit})"


def _bright(measures: Measures, settings: ValidateSettings) -> str:
    low, burnt = measures.exposure.low, measures.exposure.burnt
    if low > settings.bright_level:
        limit = f"`validate.bright_level` is {settings.bright_level}"
        return f"99% of the picture is no darker than level {low} of 255 ({limit})"
    if burnt > settings.max_burnt:
        limit = f"`validate.max_burnt` is {settings.max_burnt:g}"
        return f"{burnt:.0%} of the picture is burnt out to white ({limit})"
    return ""


def _artefacts(measures: Measures, settings: ValidateSettings) -> str:
    if 0 < measures.quality < settings.min_jpeg_quality:
        limit = f"`validate.min_jpeg_quality` is {settings.min_jpeg_quality}"
        return f"Saved at JPEG quality {measures.quality} of 100 ({limit})"
    if measures.blocks > settings.max_blockiness:
        limit = f"`validate.max_blockiness` is {settings.max_blockiness:g}"
        return f"{measures.blocks:.0%} of the edges of JPEG's 8 x 8 blocks stand out ({limit})"
    return ""


def _borders(seen: Decoded, measures: Measures, settings: ValidateSettings) -> str:
    found = measures.borders
    width, height = settings.max_border * seen.width, settings.max_border * seen.height
    if max(found.left, found.right) <= width and max(found.top, found.bottom) <= height:
        return ""
    sides = {
        "left": found.left,
        "top": found.top,
        "right": found.right,
        "bottom": found.bottom,
    }
    widths = ", ".join(f"{side} {px} px" for side, px in sides.items() if px)
    return f"Borders of one colour: {widths} (`validate.max_border` is {settings.max_border:g})"
