"""What many tests need: the small model, and real photographs with captions."""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from latentmill.cache.files import write_text
from latentmill.datasets.images import LoadRules, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Record, Report, record_to_json
from latentmill.datasets.sources import record_id
from latentmill.stages.cache import Cache
from latentmill.stages.settings import (
    BucketSettings,
    CacheSettings,
    CaptionSettings,
    ModelSettings,
    SampleSettings,
    Source,
    ValidateSettings,
)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# `make test` is not the person who calls the commands in the tests; `&` in a script is none either.
for _name in ("LATENTMILL_MAKE_FROM", "MAKEFLAGS", "MAKELEVEL", "DATA", "MODEL", "WORK", "CONFIG"):
    os.environ.pop(_name, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # Small tensors: threads only wait for each other.

PHOTOS = {
    "astronaut.png": "a portrait of an astronaut in an orange suit, flag in the background",
    "chelsea.png": "a tabby cat looking at the camera, close up",
    "coffee.png": "a cup of coffee with a spoon on a saucer",
    "rocket.jpg": "a rocket on its launch pad at dusk",
    "motorcycle_left.png": "a motorcycle in a garage",
    "hubble_deep_field.jpg": "many galaxies on a black sky",
    "camera.png": "a man with a camera on a tripod, black and white",
    "grass.png": "short green grass from above",
}
"""Pictures that scikit-image carries in its wheel: 6 sizes, from 1:1 to 3:2, grey and colour."""


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion folder with random weights; read only by agreement."""
    from latentmill.pipeline.tinysd.architecture import write_random_model

    folder = tmp_path_factory.mktemp("models") / "tinysd"
    write_random_model(folder)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Iterator[Path]:
    """A folder of real photographs, each with a `.txt` caption."""
    package = pytest.importorskip("skimage")
    folder = tmp_path / "my photos 写真 🐕"
    folder.mkdir()
    for name, caption in PHOTOS.items():
        shutil.copy(Path(package.__file__).parent / "data" / name, folder / name)
        (folder / name).with_suffix(".txt").write_text(caption, encoding="utf-8")
    yield folder


@dataclass(frozen=True)
class PictureSet:
    """A few noise pictures with captions, a model, and the `cache` stage that encodes them."""

    root: Path
    model: Path

    @property
    def data(self) -> Path:
        """The user's folder."""
        return self.root / "data"

    @property
    def layout(self) -> Layout:
        """The work folder."""
        return Layout(self.root / "work")

    def draw(
        self, name: str, caption: str, size: tuple[int, int] = (80, 70), seed: int = 0
    ) -> Path:
        """Write one picture with its caption; the pixels depend on the size and the seed."""
        self.data.mkdir(parents=True, exist_ok=True)
        path = self.data / name
        noise = random.Random(seed).randbytes(size[0] * size[1] * 3)
        Image.frombytes("RGB", size, noise).save(path)
        path.with_suffix(".txt").write_text(caption, encoding="utf-8")
        return path

    def validated(self) -> "PictureSet":
        """Write the manifest that `validate` would write."""
        lines = [record_to_json(self._record(path)) for path in sorted(self.data.glob("*.png"))]
        write_text(self.layout.manifest, "".join(line + "\n" for line in lines))
        return self

    def stage(self, **changes: Any) -> Cache:
        """The `cache` stage: buckets of 64x64 in steps of 16, two samples a shard, on the CPU."""
        stage = Cache(
            layout=self.layout,
            sources=(Source(path=str(self.data)),),
            settings=CacheSettings(shard_size=2, device="cpu"),
            bucket=BucketSettings(area=64, step=16, min=32, max=128),
            validate=ValidateSettings(min_side=16),
            caption=CaptionSettings(),
            model=ModelSettings(id=str(self.model)),
            sample=SampleSettings(prompts=("a red circle",), negative="blurry"),
        )
        return replace(stage, **changes)

    def cached(self, **changes: Any) -> Report:
        """Validate, then run the whole stage in this process."""
        stage = self.validated().stage(**changes)
        return stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])

    def shard_bytes(self) -> dict[str, bytes]:
        """Every file in the shards' folder."""
        return {path.name: path.read_bytes() for path in sorted(self.layout.shards.iterdir())}

    def _record(self, path: Path) -> Record:
        image = load_picture(path, LoadRules()).image
        stat = path.stat()
        return Record(
            id=record_id(path.name),
            source=0,
            path=path.name,
            file=str(path),
            bytes=stat.st_size,
            modified_ns=stat.st_mtime_ns,
            format="PNG",
            width=image.width,
            height=image.height,
            pixels=pixel_hash(image),
            caption=path.with_suffix(".txt").read_text(encoding="utf-8"),
        )


@pytest.fixture(scope="session")
def _encoded_set(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> PictureSet:
    pictures = PictureSet(tmp_path_factory.mktemp("encoded"), small_model)
    for index in range(5):
        size = (80, 70) if index < 3 else (60, 100)
        pictures.draw(f"{index}.png", f"picture number {index}", size, seed=index)
    pictures.cached()
    return pictures


@pytest.fixture
def encoded_set(_encoded_set: PictureSet, tmp_path: Path) -> PictureSet:
    """Five pictures in two buckets, already encoded into three shards: a copy to change."""
    shutil.copytree(_encoded_set.root, tmp_path, dirs_exist_ok=True)
    return PictureSet(tmp_path, _encoded_set.model).validated()


@dataclass
class Calls:
    """Pictures and captions that went through the encoders."""

    latents: int = 0
    texts: int = 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    from diffusers import AutoencoderKL
    from transformers import CLIPTextModel

    counted = Calls()
    encode, forward = AutoencoderKL.encode, CLIPTextModel.forward

    def counted_encode(self: Any, pixels: Any, *args: Any, **named: Any) -> Any:
        counted.latents += len(pixels)
        return encode(self, pixels, *args, **named)

    def counted_forward(self: Any, ids: Any, *args: Any, **named: Any) -> Any:
        counted.texts += len(ids)
        return forward(self, ids, *args, **named)

    monkeypatch.setattr(AutoencoderKL, "encode", counted_encode)
    monkeypatch.setattr(CLIPTextModel, "forward", counted_forward)
    return counted
