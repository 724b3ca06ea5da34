"""The settings of every stage: names, limits, defaults and the help text of each."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SECTION = ConfigDict(frozen=True, extra="forbid")

NO_CAPTIONER = "none"
NO_SCORER = "none"
AUTO_SCORER = "auto"
SCORER_ARCHITECTURE = "ViT-B-32"
BLIP = "Salesforce/blip-image-captioning-base"
BLIP_REVISION = "82a37760796d32b1411fe092ab5d4e227313294b"


class Source(BaseModel):
    """One folder of pictures with captions."""

    model_config = SECTION

    path: str = Field(description="Folder with pictures; read only, never written.")
    repeats: int = Field(1, ge=1, description="How often each picture is seen in an epoch.")
    weight: float = Field(1.0, gt=0, description="Factor on the loss of this source's pictures.")
    trigger: str = Field("", description="Word put in front of each caption, once.")
    is_regularisation: bool = Field(False, description="Pictures of the class, not of the subject.")
    crop_anchor: Literal["centre", "top"] = Field(
        "centre", description="What stays of a picture too high for its bucket: `top` keeps heads."
    )
    caption_extension: str = Field(
        "auto",
        description="Ending of caption files: `auto` (.txt and .caption), or one such as `.txt`.",
    )
    encoding: str = Field(
        "auto",
        description="Encoding of this source's captions that are not UTF-8; `auto`: as in "
        "`validate.encoding`.",
    )


class ModelSettings(BaseModel):
    """The Stable Diffusion model to train for."""

    model_config = SECTION

    id: str = Field(
        "stable-diffusion-v1-5/stable-diffusion-v1-5",
        description="Hub id, folder in diffusers layout, or a single .safetensors file.",
    )
    revision: str = Field("", description="Hub revision (branch, tag or commit); empty is main.")


class ValidateSettings(BaseModel):
    """What counts as a usable picture."""

    model_config = SECTION

    background: str = Field(
        "#ffffff", description="Colour under transparent pixels, for every stage."
    )
    animated: Literal["reject", "first-frame"] = Field(
        "reject", description="What to do with animated GIF, WebP, PNG and multi-page TIFF."
    )
    max_megapixels: float = Field(
        178.0, gt=0, description="Larger pictures are rejected from their header, undecoded."
    )
    max_seconds: float = Field(
        60.0, gt=0, le=86_400, description="A picture that takes longer to decode is rejected."
    )
    max_gigabytes: float = Field(
        8.0, gt=0, le=4096, description="Memory (GiB) that decoding one picture may take."
    )
    min_side: int = Field(64, ge=1, description="Shortest side in px; smaller ones are rejected.")
    max_aspect: float = Field(
        6.0, gt=1, description="Longest side by shortest side; beyond it most would be cropped."
    )
    target_side: int = Field(
        0, ge=0, description="Side in px of the square of the area trained at; 0: `bucket.area`."
    )
    max_upscale: float = Field(
        1.1, ge=1, description="Warn of pictures that would be enlarged more than so many times."
    )
    max_blur: float = Field(
        1.05, gt=0, description="Warn where even the sharpest edges are wider (sigma in px)."
    )
    dark_level: int = Field(
        70, ge=0, le=255, description="Warn where 99% of the pixels are darker (0 to 255)."
    )
    bright_level: int = Field(
        200, ge=0, le=255, description="Warn where 99% of the pixels are brighter (0 to 255)."
    )
    max_burnt: float = Field(
        0.4, ge=0, le=1, description="Warn where a larger share is burnt out to white."
    )
    min_jpeg_quality: int = Field(
        40, ge=0, le=100, description="Warn of JPEG files saved at a lower quality."
    )
    max_blockiness: float = Field(
        0.12, ge=0, le=1, description="Warn where a larger share of JPEG's block edges shows."
    )
    max_border: float = Field(
        0.02, ge=0, le=1, description="Warn of borders wider than this share of the side."
    )
    near_distance: int = Field(
        8,
        ge=0,
        le=24,
        description="Pictures whose perceptual hashes (64 bits) differ less are "
        "near duplicates; 0: only equal hashes.",
    )
    max_rejects: int = Field(
        0, ge=0, description="Go on (exit 0) with up to this many rejected pictures."
    )
    fail_on: tuple[str, ...] = Field(
        ("check",),
        description="What else ends with exit 3: problem codes, or a whole kind such as `check` "
        "(captions that a person must confirm) or `warning`; empty: nothing else.",
    )
    fix: Literal["no", "needed", "all"] = Field(
        "no",
        description="Write repaired copies under WORK/validate/fixed: `needed` (--fix) of what "
        "other programs read differently, `all` of the whole set, for use with other trainers.",
    )
    fix_format: Literal["png", "jpeg"] = Field(
        "png",
        description="`png` keeps every pixel, so nothing is encoded again; `jpeg` (quality 95) is "
        "smaller for pictures that were JPEG, and changes them slightly.",
    )
    encoding: str = Field(
        "auto", description="Encoding of captions that are not UTF-8, such as gb18030; or `auto`."
    )

    @field_validator("fail_on", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Take `truncated,check` as the command line gives it."""
        if isinstance(value, str):
            return tuple(word for part in value.split(",") if (word := part.strip()))
        return value

    @field_validator("fix", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """Take `true` for `needed`."""
        return ("needed" if value else "no") if isinstance(value, bool) else value


class ReplaceRule(BaseModel):
    """One rule of `caption.replace`."""

    model_config = SECTION

    find: str = Field(min_length=1, description="Words (whole, in any case), or a pattern.")
    by: str = Field("", description="What stands there afterwards; empty takes the words out.")
    regex: bool = Field(False, description="`find` is a regular expression, `by` may hold \\1.")

    @model_validator(mode="after")
    def _compiles(self) -> "ReplaceRule":
        try:
            if self.regex:
                re.compile(self.find).sub(self.by, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"`find` or `by` is no regular expression ({error})") from error
        return self


class CaptionSettings(BaseModel):
    """Drafts for pictures without a caption."""

    model_config = SECTION

    model: str = Field(
        BLIP,
        description="BLIP, BLIP-2, GIT or Florence-2 model: hub id or local folder; `none`: no "
        "drafts, a person writes all.",
    )
    revision: str = Field(
        "auto", description="Hub revision; `auto` is the pinned one of the default model."
    )
    prefix: str = Field("", description="Words that each draft begins with, such as `a photo of`.")
    batch_size: int = Field(8, ge=1, description="Pictures at once; halved when memory runs out.")
    num_beams: int = Field(3, ge=1, description="Beams of the search for a draft.")
    max_tokens: int = Field(40, ge=5, le=200, description="Longest draft, in tokens.")
    min_words: int = Field(4, ge=1, description="Shorter drafts are flagged.")
    device: str = Field("auto", description="`auto`, `cpu`, `cuda`, `cuda:1`, `mps`.")
    score_model: str = Field(
        AUTO_SCORER,
        description="CLIP model that compares pictures with captions: `auto` (ViT-B-32 of "
        "laion2b_s34b_b79k, off where it cannot be had), `ViT-B-32` (an error then), an open_clip "
        "hub id, folder or .safetensors file; `none`: no comparison.",
    )
    accept_drafts: bool = Field(
        False, description="Train on drafts nobody looked at; the LoRA's header records it."
    )
    replace: tuple[ReplaceRule, ...] = Field(
        (),
        description="Words to replace in drafts and in captions of files, such as "
        '[{find = "a man", by = "zwx man"}]; `caption --dry-run` shows what changes.',
    )
    review_encoding: str = Field(
        "auto",
        description="Encoding of a review.csv that is not UTF-8, such as gb18030; or `auto`.",
    )


class BucketSettings(BaseModel):
    """Shapes that pictures are resized to."""

    model_config = SECTION

    area: int = Field(512, ge=16, description="Side of the square of a bucket's area, in px.")
    step: int = Field(64, ge=8, description="Sides are multiples of this, in px.")
    min: int = Field(256, ge=8, description="Shortest side of a bucket, in px.")
    max: int = Field(1024, ge=16, description="Longest side of a bucket, in px.")
    upscale: Literal["allowed", "never"] = Field(
        "allowed", description="`never` puts a small picture into a bucket it fills, if any."
    )
    shape: Literal["any", "square"] = Field("any", description="`square` is one bucket only.")
    fit: Literal["crop", "pad"] = Field(
        "crop",
        description="`pad` shows the whole picture on grey, which is left out of the loss.",
    )
    without: tuple[str, ...] = Field(
        (), description="Buckets to leave out, such as [`256x1024`]: the next ones take over."
    )

    @model_validator(mode="after")
    def _ordered(self) -> "BucketSettings":
        if not self.min <= self.area <= self.max:
            raise ValueError("bucket.min <= bucket.area <= bucket.max does not hold")
        return self


class CacheSettings(BaseModel):
    """Encoded samples on disk."""

    model_config = SECTION

    dir: str = Field("", description="Folder of shards shared by many works; empty is WORK/cache.")
    shard_size: int = Field(64, ge=1, le=10_000, description="Most samples in a shard.")
    batch_size: int = Field(8, ge=1, description="Pictures encoded at once on a GPU.")
    dtype: Literal["float16", "float32"] = Field("float16", description="Type of stored tensors.")
    clip_skip: int = Field(
        1, ge=1, le=11, description="1 is the text encoder's last layer, 2 the one before."
    )
    text_chunks: int = Field(
        1, ge=1, le=3, description="Room for a caption, in chunks of 75 tokens: 75, 150 or 225."
    )
    flip: bool = Field(
        False, description="Encode each picture's mirror image too; half of the sights take it."
    )
    variants: int = Field(
        1,
        ge=1,
        le=64,
        description="Texts of a caption: itself, then its tags in other orders; one per sight.",
    )
    keep_tags: int = Field(
        1,
        ge=0,
        description="Tags at the front that variants leave in place; a trigger always is.",
    )
    tag_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of the other tags that a variant leaves out."
    )
    separator: str = Field(
        "",
        description="Text between alternative captions of a picture, such as ` | `; empty: none.",
    )
    device: str = Field("auto", description="`auto`, `cpu`, `cuda`, `cuda:1`, `mps`.")


class TrainSettings(BaseModel):
    """The LoRA and its training."""

    model_config = SECTION

    name: str = Field("", description="Ending of the run's folder name; empty: the data's name.")
    rank: int = Field(8, ge=1, le=1024, description="Rank of the LoRA.")
    alpha: float = Field(8.0, gt=0, description="The weight delta is scaled by alpha / rank.")
    targets: Literal["transformer", "attention", "transformer+conv"] | tuple[str, ...] = Field(
        "transformer", description="Layers with a LoRA: a preset, or endings of module names."
    )
    learning_rate: float = Field(1e-4, gt=0, le=0.1, description="Peak learning rate.")
    scheduler: Literal["constant", "linear", "cosine"] = Field(
        "cosine", description="Learning rate after the warm-up."
    )
    warmup: float = Field(
        0.05,
        ge=0,
        description="Warm-up: below 1 a share of the optimiser steps, else their number.",
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay.")
    max_grad_norm: float = Field(1.0, ge=0, description="Gradient norm is cut to this; 0 is off.")
    batch_size: int = Field(1, ge=1, description="Samples in a micro-batch.")
    gradient_accumulation: int = Field(4, ge=1, description="Micro-batches per optimiser step.")
    gradient_checkpointing: bool = Field(
        True, description="Compute activations twice to hold far fewer of them."
    )
    precision: Literal["auto", "fp32", "fp16", "bf16"] = Field(
        "auto", description="`auto`: bf16 where the card has it, else fp16, fp32 on a CPU."
    )
    device: str = Field("auto", description="`auto`, `cpu`, `cuda` or `mps`.")
    epochs: int = Field(10, ge=1, description="Times each sample is seen; see `steps`.")
    steps: int = Field(0, ge=0, description="Optimiser steps; 0 means `epochs` decides.")
    seed: int = Field(42, ge=0, description="Same seed, same order, same noise, same weights.")
    save_every: int = Field(200, ge=1, description="Optimiser steps between saved states.")
    keep_states: int = Field(2, ge=1, description="Saved states kept; older ones are deleted.")
    log_every: int = Field(1, ge=1, description="Optimiser steps between lines of metrics.jsonl.")
    holdout: Annotated[float, Field(ge=0, allow_inf_nan=False)] | tuple[str, ...] = Field(
        0.0,
        description="Samples to measure on instead of training: a share below 1, a number, or ids.",
    )
    measure_every: int = Field(
        0, ge=0, description="Optimiser steps between held-out losses; 0: as `save_every`."
    )
    patience: int = Field(
        0, ge=0, description="Held-out losses in a row without a gain that end the run; 0 is off."
    )
    min_gain: float = Field(
        0.0, ge=0, lt=1, description="Least share by which the held-out loss must fall to count."
    )
    preview_every: int = Field(
        0, ge=0, description="Optimiser steps between previews by the UNet alone; 0 is off."
    )
    caption_dropout: float = Field(
        0.0, ge=0, le=1, description="Share of samples that see the empty caption instead."
    )
    min_snr_gamma: float = Field(0.0, ge=0, description="Min-SNR weighting; 0 is off, 5 is usual.")
    noise_offset: float = Field(0.0, ge=0, le=1, description="Offset noise; 0 is off.")
    workers: int = Field(0, ge=0, description="Loader processes; 0 reads in the trainer.")
    on_oom: Literal["adapt", "stop"] = Field(
        "adapt",
        description="No memory left: `adapt` halves the micro-batch, then checkpoints; or `stop`.",
    )
    max_bad_steps: int = Field(
        3, ge=1, description="Non-finite steps in a row (each is not taken) that end the run."
    )


class SampleSettings(BaseModel):
    """Pictures made to look at."""

    model_config = SECTION

    prompts: tuple[str, ...] = Field(
        (), description="Prompts; empty: captions of the data set, evenly spread."
    )
    negative: str = Field(
        "low quality, blurry, deformed hands",
        description="Negative prompt of previews and samples; never used in training.",
    )
    seed: int = Field(42, ge=0, description="Seed of the first picture; the same for all runs.")
    steps: int = Field(25, ge=1, le=1000, description="Denoising steps.")
    guidance: float = Field(7.0, ge=0, description="Classifier-free guidance scale.")
    num_prompts: int = Field(4, ge=1, le=64, description="Captions used when `prompts` is empty.")
    lora_scale: float = Field(1.0, ge=0, le=4, description="Strength of the LoRA in the pictures.")
    width: int = Field(
        0, ge=0, multiple_of=8, description="Width in px; 0: as most training pictures."
    )
    height: int = Field(
        0, ge=0, multiple_of=8, description="Height in px; 0: as most training pictures."
    )
    device: str = Field("auto", description="`auto`, `cpu`, `cuda`, `cuda:1`, `mps`.")


class ExportSettings(BaseModel):
    """The layout a LoRA is written in."""

    model_config = SECTION

    layout: Literal["kohya", "diffusers", "peft"] = Field(
        "diffusers", description="Key names: kohya (ComfyUI, A1111), diffusers or PEFT."
    )
    output: str = Field(
        "",
        description="File or folder to write, where no other file is; empty: `export` beside the "
        "LoRA, replaced by each export.",
    )
    dtype: Literal["keep", "float32", "float16", "bfloat16"] = Field(
        "keep", description="Type of the stored weights; `keep` is that of the source."
    )
    rank: int = Field(
        0, ge=0, description="Shrink to this rank by singular values; 0 keeps the rank."
    )
    step: int = Field(
        0, ge=0, description="Take the run's saved state of this step; 0 is the run's LoRA."
    )
    merge: str = Field(
        "", description="Folder for the whole model with the LoRA added; no LoRA file is written."
    )
    scale: float = Field(1.0, ge=-4, le=4, description="Strength of the LoRA in a merged model.")


class EngineSettings(BaseModel):
    """How units of work are spread."""

    model_config = SECTION

    kind: Literal["serial", "processes", "ray"] = Field(
        "serial",
        description="`processes` spreads units over this machine's cores, `ray` over a Ray cluster "
        "(RAY_ADDRESS) or this machine.",
    )
    workers: int = Field(0, ge=0, description="Worker processes; 0 is one per core.")
