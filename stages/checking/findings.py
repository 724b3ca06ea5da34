"""The codes that `validate` reports, each with its level, what it means and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass

from latentmill.datasets.records import Level, Problem

LEVELS: tuple[Level, ...] = ("reject", "check", "warning", "advice")
"""Worst first."""

LOADER_REJECTS = frozenset(
    {
        "zero-bytes",
        "not-a-picture",
        "not-a-file",
        "unsupported-format",
        "unreadable",
        "truncated",
        "decoder-error",
        "metadata-too-large",
        "too-many-pixels",
        "out-of-memory",
        "too-slow",
        "decoder-crashed",
        "animated",
    }
)
"""Codes whose words come from the loader, or from the process that it runs in."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A kind of problem."""

    level: Level
    message: str
    fix: str


_LOOK = "Look at the picture in the report; replace it if it looks wrong."
_REVIEW = "Confirm or correct the caption in review.csv."
_ENCODING = (
    "Confirm or correct it in review.csv, or name the encoding: `--encoding NAME`, or `encoding` "
    "of the source."
)
_PROMPT = "Training reads it literally: write what the picture shows."
_TABLE = "Correct the line; the other rows are used."

FINDINGS = {
    # Pictures that cannot be used; the loader's own codes bring their own words.
    "too-small": Finding("reject", "Too small to train on", "Use a larger copy, or remove it."),
    "extreme-aspect": Finding(
        "reject", "Too long for any bucket", "Crop it to the part that matters, or remove it."
    ),
    "single-colour": Finding(
        "reject", "All pixels are of one colour", "Replace the picture, or remove it."
    ),
    "changed-during-run": Finding(
        "reject", "The file appeared or changed while it was read", "Run validate again."
    ),
    # Captions that a person must settle.
    "encoding-unsure": Finding("check", "Not UTF-8, and short or ambiguous", _ENCODING),
    "encoding-double-meaning": Finding("check", "Valid UTF-8, but probably GBK", _ENCODING),
    "caption-replacement-character": Finding(
        "check", "The caption holds U+FFFD: characters were lost before", _REVIEW
    ),
    "caption-mojibake": Finding(
        "check", "The caption was saved in a wrong encoding before", _REVIEW
    ),
    # Pictures that are used, after the loader did something to them.
    "turned-upright": Finding("warning", "Turned upright by its EXIF tag", "Nothing to do."),
    "orientation-unreadable": Finding(
        "warning", "The EXIF orientation is damaged; the pixels are used as stored", _LOOK
    ),
    "depth-reduced": Finding(
        "warning", "More than 8 bits per channel, scaled to 8", "Nothing to do."
    ),
    "transparency-flattened": Finding(
        "warning",
        "Transparent parts show the background colour",
        "Set `validate.background` to a colour that suits the pictures, or fill them yourself.",
    ),
    "profile-converted": Finding(
        "warning", "Colours converted from the embedded profile to sRGB", "Nothing to do."
    ),
    "profile-unreadable": Finding(
        "warning", "The colour profile cannot be used; the colours are taken as sRGB", _LOOK
    ),
    "cmyk-uncertain": Finding("warning", "CMYK without a usable profile: colours uncertain", _LOOK),
    "name-does-not-match": Finding(
        "warning", "The name promises another format than the content has", "Nothing to do."
    ),
    "first-frame": Finding("warning", "Animated; the first frame is used", "Nothing to do."),
    "duplicate-pixels": Finding(
        "warning", "The same pixels as another picture", "Remove one, or raise `repeats` instead."
    ),
    "near-duplicate": Finding(
        "warning",
        "Nearly the same as another picture",
        "Keep the better copy, unless both are meant.",
    ),
    "mirrored-duplicate": Finding(
        "warning",
        "Nearly the same as another picture's mirror image",
        "Keep the better copy, unless both are meant.",
    ),
    "upscaled": Finding(
        "warning",
        "Smaller than it will be trained at",
        "Use a larger original, or lower `bucket.area`; `bucket.upscale` can forbid enlarging.",
    ),
    "blurred": Finding(
        "warning", "Blurred", "Replace it by a sharp picture; a LoRA learns blur readily."
    ),
    "dark": Finding(
        "warning", "Too dark: detail is lost", "Lighten it from the original, or replace it."
    ),
    "bright": Finding(
        "warning", "Too bright: detail is lost", "Darken it from the original, or replace it."
    ),
    "jpeg-artefacts": Finding(
        "warning", "Heavily compressed", "Use a better copy; saving it again does not help."
    ),
    "borders": Finding("warning", "Borders of one colour", "Crop them off: they are learned."),
    "name-twins": Finding(
        "warning",
        "Names differ only in letter case or Unicode form",
        "Rename one, if the folder is to be copied to Windows or macOS.",
    ),
    # Captions that are used.
    "encoding-guessed": Finding(
        "warning",
        "Not UTF-8; read by the evidence of the folder",
        "Nothing to do if it reads well; `--encoding NAME` settles another reading.",
    ),
    "caption-invisible-characters": Finding(
        "warning", "Characters without a shape taken out of the caption", "Nothing to do."
    ),
    "long": Finding(
        "warning",
        "More than 77 CLIP tokens: the end is cut off",
        "Shorten it; put what matters most at its beginning.",
    ),
    "caption-file-name": Finding(
        "warning",
        "The caption only repeats the file's name",
        "Write what the picture shows, or delete the caption and let BLIP draft it.",
    ),
    "caption-generic": Finding(
        "warning",
        "The caption fits any picture",
        "Write what the picture shows, or delete the caption and let BLIP draft it.",
    ),
    "caption-html": Finding("warning", "HTML in the caption", "Write the plain characters."),
    "caption-prompt-weights": Finding(
        "warning", "Prompt weights in the caption", "Take out brackets and numbers."
    ),
    "caption-lora-tag": Finding("warning", "A LoRA tag in the caption", "Take the tag out."),
    "caption-web-ui-parameters": Finding(
        "warning", "Generation settings of a web UI in the caption", _PROMPT
    ),
    "caption-is-data": Finding("warning", "The caption is data, not a description", _PROMPT),
    "captions-with-mark": Finding(
        "advice",
        "Caption files with a byte-order mark",
        "Nothing to do here; other trainers learn the mark as a character.",
    ),
    "captions-with-crlf": Finding(
        "advice", "Caption files with Windows line ends", "Nothing to do here."
    ),
    "caption-missing": Finding(
        "warning", "No caption, while other pictures have one", "Write one, or let BLIP draft it."
    ),
    "caption-empty": Finding(
        "warning", "The caption file is empty", "Write a caption, or let BLIP draft it."
    ),
    "caption-multiline": Finding(
        "warning", "Several lines, joined with commas", "Nothing to do, if one caption is meant."
    ),
    "caption-control-characters": Finding(
        "warning", "Control characters taken out of the caption", "Nothing to do."
    ),
    "caption-conflict": Finding(
        "warning", "Two captions that differ", "Remove the one that does not hold."
    ),
    "caption-shared": Finding(
        "warning", "Two pictures share a stem and so a caption", "Rename one of the pictures."
    ),
    "caption-unreadable": Finding(
        "warning", "The caption file cannot be read", "Check the file and its permissions."
    ),
    "caption-orphan": Finding(
        "warning", "A caption without a picture", "Rename it as its picture, or remove it."
    ),
    # Tables of captions, and the set as a whole.
    "metadata-columns": Finding(
        "warning",
        "A table of captions without known columns",
        "Name them `file_name` and `text` (or `filename` and `prompt`) in the first line.",
    ),
    "metadata-broken-row": Finding("warning", "A row that cannot be read", _TABLE),
    "metadata-missing-picture": Finding("warning", "A row names a missing picture", _TABLE),
    "metadata-repeated-row": Finding("warning", "A picture is named twice", _TABLE),
    "metadata-name": Finding(
        "warning",
        "Not read: only metadata.jsonl and metadata.csv are",
        "Rename it if it holds captions.",
    ),
    "folder-unreadable": Finding(
        "warning", "A folder that cannot be opened", "Check its permissions."
    ),
    "hidden-pictures": Finding(
        "warning",
        "Hidden pictures are passed over",
        "Take the dot off the name if they are meant; else there is nothing to do.",
    ),
    "few-pictures": Finding(
        "advice",
        "A small set",
        "More pictures, in other places, light and clothes, help more than more steps; look at "
        "samples early, a small set is memorised soon.",
    ),
    "some-pictures": Finding("advice", "A set of usual size", "A start; compare samples."),
    "many-pictures": Finding(
        "advice", "A large set", "A start; a higher rank holds more of a varied set."
    ),
    "few-distinct-captions": Finding(
        "advice",
        "Few different captions",
        "Say what differs between the pictures; what is never named becomes part of the subject.",
    ),
    "captions-with-underscores": Finding(
        "advice",
        "Tags with underscores",
        "CLIP reads `long_hair` otherwise than `long hair`; write blanks if your prompts do.",
    ),
    "captions-not-english": Finding(
        "advice",
        "Captions in scripts that CLIP reads byte by byte",
        "SD 1.5 learned English captions: translate them, or let `latentmill caption` draft them.",
    ),
    "captions-in-several-languages": Finding(
        "advice", "Captions in several languages", "Use one language, best English."
    ),
    "trigger-twice": Finding(
        "advice", "The trigger stands twice", "Take it out of the captions, or clear `trigger`."
    ),
    "trigger-added": Finding("advice", "The trigger is missing in some", "Nothing to do."),
    "trigger-unset": Finding(
        "advice",
        "A made-up word stands in nearly all captions",
        "If it is the trigger, set `trigger` of the source: it is then put in front of each "
        "caption, once, drafts too.",
    ),
    "small-pictures": Finding(
        "advice",
        "Pictures far below the target size",
        "Use larger copies, or lower `bucket.area`: enlarged pictures teach blur.",
    ),
    "one-aspect-ratio": Finding(
        "advice",
        "One aspect ratio only",
        "Nothing to do if you will make pictures of that shape; others suffer.",
    ),
    "many-duplicates": Finding(
        "advice", "Many pictures alike", "Keep the best of each group; raise `repeats` instead."
    ),
    "sources-unbalanced": Finding(
        "advice", "Sources of very different weight", "Set `repeats` if both matter alike."
    ),
    "regularisation-without-class": Finding(
        "advice",
        "Regularisation captions without a common word",
        'Name the class, such as "dog", in each caption, or as `trigger` of the source.',
    ),
    "no-captions": Finding(
        "advice",
        "No picture has a caption",
        "Set `caption_extension` of the source if yours end otherwise, or let `latentmill caption` "
        "draft them.",
    ),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The picture or file that a problem is about; `id` is empty for a file of another kind."""

    id: str
    path: str


def problem(code: str, subject: Subject, message: str = "") -> Problem:
    """Return a problem with the words of its code, or with a message that says more."""
    kind = FINDINGS[code]
    return Problem(subject.id, subject.path, code, message or kind.message, kind.fix, kind.level)


def worst_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort by level, path and code."""
    return tuple(sorted(problems, key=lambda one: (LEVELS.index(one.level), one.path, one.code)))
