import json
import subprocess
import sys
from dataclasses import replace

import numpy
import pytest
from PIL import Image

from latentmill.datasets.errors import ModelError, OutOfMemoryError
from latentmill.datasets.images import LoadRules, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Record, record_to_json
from latentmill.datasets.review import format_review
from latentmill.datasets.review_memory import read_review
from latentmill.datasets.sources import record_id
from latentmill.stages.approve import approve
from latentmill.stages.caption import Caption
from latentmill.stages.captioning import scorer, scoring
from latentmill.stages.captioning.scorer import embed_pictures, embed_texts, load_scorer
from latentmill.stages.captioning.scorer_files import CONFIG, WEIGHTS, find_scorer
from latentmill.stages.settings import CaptionSettings, Source, ValidateSettings

pytestmark = pytest.mark.slow

HUES = {f"hue{chr(ord('a') + place)}": place for place in range(14)}
TINY = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
PREPROCESS = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    """An open_clip model of toy size with random weights, as hub repositories hold it."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("models") / "small clip 图"
    folder.mkdir()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.CLIP(**TINY)
    save_file({name: at.contiguous() for name, at in model.state_dict().items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({"model_cfg": TINY, "preprocess_cfg": PREPROCESS}))
    return folder


@pytest.fixture
def loaded(clip_folder):
    return load_scorer(find_scorer(str(clip_folder), may_fetch=False), "cpu")


@pytest.fixture(autouse=True)
def fresh():
    scoring._attempt.cache_clear()
    yield
    scoring._attempt.cache_clear()


@pytest.fixture
def stage(tmp_path, clip_folder):
    """Fourteen pictures of one grey value each, every caption naming its own."""
    data, layout = tmp_path / "data", Layout(tmp_path / "work 作品")
    data.mkdir()
    for name, place in HUES.items():
        Image.new("RGB", (70, 80), (place * 16,) * 3).save(data / f"{name}.png")
    validate(layout, data, {name: f"a wall of the colour {name}" for name in HUES})
    settings = CaptionSettings(
        model="none", score_model=str(clip_folder), batch_size=2, device="cpu"
    )
    return Caption(layout, (Source(path=str(data)),), settings, ValidateSettings())


def validate(layout, data, captions):
    lines = []
    for path in sorted(data.iterdir()):
        image = load_picture(path, LoadRules()).image
        size = (path.stat().st_size, path.stat().st_mtime_ns, "PNG", *image.size)
        fields = (record_id(path.name), 0, path.name, str(path), *size, pixel_hash(image))
        lines.append(record_to_json(Record(*fields, caption=captions.get(path.stem))) + "\n")
    layout.manifest.parent.mkdir(parents=True, exist_ok=True)
    layout.manifest.write_text("".join(lines))


def run(stage):
    return stage.finish([stage.work(unit, lambda _: None) for unit in stage.plan()])


def rows(stage):
    return {row.image.removesuffix(".png"): row for row in read_review(stage.layout)}


def vector(place):
    values = numpy.full(len(HUES), 0.1, dtype=numpy.float32)
    values[place] = 1
    return values / numpy.linalg.norm(values)


@pytest.fixture
def fake(monkeypatch):
    """A scorer that sees grey values and reads the words for them; counts what it was given."""
    given = []

    def pictures(_, images):
        given.extend(images)
        return [vector(image.getpixel((0, 0))[0] // 16) for image in images]

    def texts(_, captions):
        given.extend(captions)
        return [vector(HUES[caption.split()[-1]]) for caption in captions]

    monkeypatch.setattr(scorer, "embed_pictures", pictures)
    monkeypatch.setattr(scorer, "embed_texts", texts)
    return given


def swap(stage, *names):
    captions = {name: f"a wall of the colour {name}" for name in HUES}
    for name, text in zip(names, (*names[1:], names[0]), strict=True):
        captions[name] = f"a wall of the colour {text}"
    validate(stage.layout, stage.layout.work.parent / "data", captions)


def test_every_caption_gets_a_score_and_fitting_ones_no_flag(stage, fake):
    report = run(stage)
    assert {row.clip_score for row in rows(stage).values()} == {1.0}
    assert {(row.status, row.flags) for row in rows(stage).values()} == {("ok", ())}
    assert (report.exit_code, report.problems) == (0, ())


def test_swapped_captions_wait_for_a_person(stage, fake):
    swap(stage, "huec", "huek")
    report = run(stage)
    waiting = {name: row for name, row in rows(stage).items() if row.status == "check"}
    assert sorted(waiting) == ["huec", "huek"]
    assert all(row.flags == ("mismatch",) for row in waiting.values())
    assert "compare with huek.png" in waiting["huec"].note
    assert [(one.path, one.code, one.level) for one in report.problems] == [
        ("huec.png", "mismatch", "check"),
        ("huek.png", "mismatch", "check"),
    ]
    assert report.counts["waiting"] == 2


def test_a_row_that_waits_for_its_answer_is_nothing_to_renew(stage, fake):
    from latentmill.pipeline.standing import _differ

    swap(stage, "huec", "huek")
    run(stage)
    waiting = rows(stage)["huec"]
    renewed = replace(waiting, status="ok", flags=())
    assert not _differ(renewed, waiting)
    assert _differ(replace(renewed, caption="other"), waiting)
    assert _differ(renewed, replace(waiting, flags=("encoding-unsure",)))


def test_a_second_run_scores_nothing_and_changes_no_byte(stage, fake):
    swap(stage, "huec", "huek")
    run(stage)
    before = {p: p.read_bytes() for p in stage.layout.work.rglob("*") if p.is_file()}
    fake.clear()
    assert stage.plan() == []
    run(stage)
    assert fake == []
    assert {p: p.read_bytes() for p in stage.layout.work.rglob("*") if p.is_file()} == before


def test_one_changed_caption_scores_one_text(stage, fake):
    run(stage)
    fake.clear()
    swap(stage, "huec")
    validate(
        stage.layout,
        stage.layout.work.parent / "data",
        {name: f"a wall of the colour {name}" for name in HUES} | {"huec": "a red wall of huec"},
    )
    assert sum(unit.size for unit in stage.plan()) == 1
    run(stage)
    assert [one for one in fake if isinstance(one, str)] == ["a red wall of huec"]


def test_a_confirmed_row_stays_confirmed_and_a_corrected_one_too(stage, fake):
    swap(stage, "huec", "huek")
    run(stage)
    approve(stage.layout, (record_id("huec.png"),), all_drafts=False)
    saved = [
        replace(row, caption="a wall of the colour huek") if row.image == "huek.png" else row
        for row in read_review(stage.layout)
    ]
    stage.layout.review.write_bytes(format_review(saved))
    assert run(stage).counts["waiting"] == 0
    assert rows(stage)["huec"].flags == ()
    assert rows(stage)["huek"].clip_score == 1.0
    before = stage.layout.review.read_bytes()
    run(stage)
    assert stage.layout.review.read_bytes() == before


def test_captions_that_slipped_into_other_rows_of_the_spreadsheet_are_asked_about(stage, fake):
    run(stage)
    named = rows(stage)
    texts = {"huec": named["hued"].caption, "hued": named["huec"].caption}
    saved = [
        replace(row, caption=texts.get(name, row.caption)) for name, row in rows(stage).items()
    ]
    stage.layout.review.write_bytes(format_review(saved))
    run(stage)
    assert {name for name, row in rows(stage).items() if row.status == "check"} == {"huec", "hued"}
    run(stage)
    assert rows(stage)["huec"].status == "check"


def test_nothing_is_compared_when_that_is_wanted(stage, fake):
    off = replace(stage, settings=stage.settings.model_copy(update={"score_model": "none"}))
    assert run(off).problems == ()
    assert fake == []
    assert {row.clip_score for row in rows(off).values()} == {None}


def test_the_optional_model_that_cannot_be_had_is_said_once(stage, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    auto = replace(stage, settings=stage.settings.model_copy(update={"score_model": "auto"}))
    monkeypatch.setattr(scoring, "find_scorer", missing)
    report = run(auto)
    assert [(one.code, one.level, one.path) for one in report.problems] == [
        ("clip-score-off", "advice", "review.csv")
    ]
    assert "no network" in report.problems[0].message
    assert (report.exit_code, report.counts["ok"]) == (0, 14)


def missing(model, may_fetch):
    if may_fetch:
        raise ModelError("no network", where="hub")


def test_a_model_that_was_named_must_be_had(stage, monkeypatch):
    named = replace(stage, settings=stage.settings.model_copy(update={"score_model": "a/b"}))
    monkeypatch.setattr(scoring, "find_scorer", missing)
    with pytest.raises(ModelError, match="no network"):
        run(named)
    with pytest.raises(ModelError, match="no network"):
        named.prepare()


def test_what_cannot_be_compared_is_not_planned(stage, monkeypatch):
    auto = replace(stage, settings=stage.settings.model_copy(update={"score_model": "auto"}))
    monkeypatch.setattr(scoring, "find_scorer", missing)
    assert auto.plan() == []
    assert auto.prepare() == []


def test_the_plan_after_fetching_has_what_was_fetched(stage, monkeypatch, fake):
    found = scoring.find_scorer
    fetched = []

    def on_hub(model, may_fetch):
        fetched.extend([model] if may_fetch else [])
        return found(model, may_fetch) if fetched else None

    monkeypatch.setattr(scoring, "find_scorer", on_hub)
    assert stage.plan() == []
    assert sum(unit.size for unit in stage.prepare()) == 14


def test_scores_of_a_model_that_went_away_are_kept(stage, fake, monkeypatch):
    swap(stage, "huec", "huek")
    run(stage)
    before = stage.layout.review.read_bytes()
    monkeypatch.setattr(scoring, "find_scorer", missing)
    assert stage.plan() == []
    run(stage)
    assert stage.layout.review.read_bytes() == before


def test_other_weights_score_anew(stage, fake, clip_folder, tmp_path):
    run(stage)
    other = tmp_path / "other"
    other.mkdir()
    (other / CONFIG).write_bytes((clip_folder / CONFIG).read_bytes() + b"\n")
    (other / WEIGHTS).write_bytes((clip_folder / WEIGHTS).read_bytes())
    again = replace(stage, settings=stage.settings.model_copy(update={"score_model": str(other)}))
    assert sum(unit.size for unit in again.plan()) == 14


def test_an_interrupted_run_goes_on_where_it_stopped(stage, fake):
    first, second = stage.plan()
    stage.work(first, lambda _: None)
    assert [unit.size for unit in stage.plan()] == [second.size]
    fake.clear()
    run(stage)
    assert len(fake) == 2 * second.size


def test_damaged_vectors_are_made_again(stage, fake):
    run(stage)
    (kept,) = stage.layout.stage("caption").glob("*.safetensors")
    kept.write_bytes(kept.read_bytes()[:-9])
    assert sum(unit.size for unit in stage.plan()) == 14
    run(stage)
    assert {row.clip_score for row in rows(stage).values()} == {1.0}


def test_a_picture_that_fails_stops_no_other(stage, fake):
    (stage.layout.work.parent / "data" / "huea.png").write_bytes(b"")
    Image.new("RGB", (9, 9)).save(stage.layout.work.parent / "data" / "hueb.png")
    report = run(stage)
    assert [(one.path, one.code) for one in report.problems] == [
        ("huea.png", "score-failed"),
        ("hueb.png", "score-failed"),
    ]
    assert sum(row.clip_score is None for row in rows(stage).values()) == 2


def test_drafts_are_scored_as_they_are_made_and_approved_by_their_score(
    stage, clip_folder, tmp_path, monkeypatch
):
    from latentmill.pipeline.tinysd.captioner import write_random_captioner

    write_random_captioner(tmp_path / "blip")
    settings = stage.settings.model_copy(update={"model": str(tmp_path / "blip"), "max_tokens": 8})
    validate(stage.layout, tmp_path / "data", {"huea": "a black wall of huea"})
    drafting = replace(stage, settings=settings)
    run(drafting)
    drafts = [row for row in rows(stage).values() if row.status == "draft" and row.caption]
    assert drafts
    assert all(-1 <= row.clip_score <= 1 for row in drafts)
    assert not list((stage.layout.stage("caption") / "parts").iterdir())
    best = max(row.clip_score for row in drafts)
    report = approve(stage.layout, (), all_drafts=False, min_clip_score=best)
    assert report.counts["approved"] == sum(row.clip_score == best for row in drafts)


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch(loaded):
    images = [Image.new("RGB", (40, 60), (place * 60, 0, 90)) for place in range(3)]
    together = embed_pictures(loaded, images)
    alone = [embed_pictures(loaded, [image])[0] for image in images]
    assert numpy.allclose(together, alone, atol=1e-5)
    assert numpy.allclose(numpy.linalg.norm(together, axis=1), 1, atol=1e-5)
    texts = embed_texts(loaded, ["a cat", "a dog " * 40])
    assert numpy.allclose(numpy.linalg.norm(texts, axis=1), 1, atol=1e-5)


def test_out_of_memory_halves_the_batch(loaded, monkeypatch):
    sizes = []

    def vectors(_, images):
        sizes.append(len(images))
        if len(images) > 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return [numpy.ones(1)]

    monkeypatch.setattr(scorer, "_picture_vectors", vectors)
    assert len(embed_pictures(loaded, [None] * 3)) == 3
    assert sizes == [3, 2, 1, 1, 1]


def test_one_picture_too_much_is_out_of_memory(loaded, monkeypatch):
    def vectors(*_):
        raise MemoryError

    monkeypatch.setattr(scorer, "_picture_vectors", vectors)
    with pytest.raises(OutOfMemoryError, match="CLIP model does not fit"):
        embed_pictures(loaded, [None])


def copied(clip_folder, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in (CONFIG, WEIGHTS):
        (folder / name).write_bytes((clip_folder / name).read_bytes())
    return folder


def test_a_file_alone_takes_the_configuration_beside_it(clip_folder):
    files = find_scorer(str(clip_folder / WEIGHTS), may_fetch=False)
    assert files.config == clip_folder / CONFIG


def test_a_file_of_another_architecture_is_an_error(clip_folder, tmp_path):
    alone = tmp_path / "model.safetensors"
    alone.write_bytes((clip_folder / WEIGHTS).read_bytes())
    with pytest.raises(ModelError, match="cannot be read") as caught:
        load_scorer(find_scorer(str(alone), may_fetch=False), "cpu")
    assert "ViT-B-32" in caught.value.expected


@pytest.mark.parametrize("change", ["drop", "add", "cut"])
def test_weights_that_do_not_fit_are_an_error(clip_folder, tmp_path, change):
    from safetensors.torch import load_file, save_file

    folder = copied(clip_folder, tmp_path)
    weights = load_file(folder / WEIGHTS)
    if change == "drop":
        del weights["text_projection"]
    elif change == "add":
        weights["other"] = weights["text_projection"].clone()
    save_file(weights, folder / WEIGHTS)
    if change == "cut":
        (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1])
    with pytest.raises(ModelError, match="cannot be read"):
        load_scorer(find_scorer(str(folder), may_fetch=False), "cpu")


@pytest.mark.parametrize("text", ["{", "[]", '{"model_cfg": 3}'])
def test_a_damaged_configuration_is_named(clip_folder, tmp_path, text):
    folder = copied(clip_folder, tmp_path)
    (folder / CONFIG).write_text(text)
    with pytest.raises(ModelError, match="configuration is damaged"):
        load_scorer(find_scorer(str(folder), may_fetch=False), "cpu")


@pytest.mark.parametrize("name", ["model.pt", "model.bin", "model.ckpt"])
def test_pickles_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    for given in (tmp_path / name, tmp_path):
        with pytest.raises(ModelError, match=r"pickle|incomplete"):
            find_scorer(str(given), may_fetch=False)
    (tmp_path / CONFIG).write_text("{}")
    with pytest.raises(ModelError, match="pickle"):
        find_scorer(str(tmp_path), may_fetch=False)


def test_a_folder_that_lacks_something_and_a_wrong_name_are_named(tmp_path):
    with pytest.raises(ModelError, match="incomplete") as caught:
        find_scorer(str(tmp_path), may_fetch=False)
    assert CONFIG in caught.value.where
    with pytest.raises(ModelError, match="is no CLIP model"):
        find_scorer("ViT-Z", may_fetch=False)


def test_without_network_the_way_on_is_named(monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    assert find_scorer("latentmill-tests/no-such-clip", may_fetch=False) is None
    with pytest.raises(ModelError, match="cannot be fetched"):
        find_scorer("latentmill-tests/no-such-clip", may_fetch=True)


def test_planning_imports_neither_torch_nor_open_clip(stage):
    code = (
        "import sys; from latentmill.stages.captioning.scoring import Scoring; "
        "from latentmill.stages.captioning.scorer_files import find_scorer; "
        f"find_scorer({stage.settings.score_model!r}, may_fetch=False).identity(); "
        "find_scorer('auto', may_fetch=False); "
        "assert not {'torch', 'open_clip'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
