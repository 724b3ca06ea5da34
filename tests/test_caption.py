import json
import logging
import shutil
from dataclasses import replace

import pytest
from PIL import Image

from latentmill.cache.clip_tokens import count_tokens
from latentmill.datasets.errors import DataError, ModelError, OutOfMemoryError, UsageError
from latentmill.datasets.images import LoadRules, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, record_to_json
from latentmill.datasets.review import ReviewRow, format_review
from latentmill.datasets.review_memory import read_review
from latentmill.datasets.sources import record_id
from latentmill.pipeline.tinysd.captioner import write_random_captioner
from latentmill.stages.approve import approve
from latentmill.stages.caption import Caption
from latentmill.stages.captioning import captioner as captioner_module
from latentmill.stages.captioning.captioner import describe, load_captioner
from latentmill.stages.captioning.captioner_folder import find_model
from latentmill.stages.captioning.draft_flags import draft_flags
from latentmill.stages.captioning.generation import Search
from latentmill.stages.settings import (
    BLIP,
    CaptionSettings,
    ReplaceRule,
    Source,
    ValidateSettings,
)

COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255), "green": (0, 200, 0), "grey": (128,) * 3}


@pytest.fixture(scope="module")
def captioner_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "small blip 图"
    write_random_captioner(folder)
    return folder


@pytest.fixture
def captioner(captioner_folder):
    return load_captioner(str(captioner_folder), "auto", "cpu")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (70, 80), colour).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def stage(tmp_path, data, captioner_folder):
    layout = Layout(tmp_path / "work 作品")
    validate(layout, data, {"green": "a green wall"})
    settings = CaptionSettings(
        model=str(captioner_folder), batch_size=1, max_tokens=8, score_model="none"
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


def no_captioner(*_):
    raise AssertionError("the captioner was loaded")


def rows(stage):
    return {row.image.removesuffix(".png"): row for row in read_review(stage.layout)}


def files(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_only_pictures_without_a_caption_are_drafted(stage):
    report = run(stage)
    assert dict(report.counts) == {
        **{"drafted": 3, "from_files": 1, "usable": 4, "ok": 1, "waiting": 3, "set_aside": 0},
        "waiting_without_text": 0,
    }
    assert report.exit_code == 0
    assert rows(stage)["green"] == ReviewRow(
        record_id("green.png"), "green.png", "a green wall", "ok", "file", tokens=5
    )
    assert {rows(stage)[name].status for name in ("red", "blue", "grey")} == {"draft"}
    assert all(row.draft == row.caption for row in rows(stage).values() if row.status == "draft")
    commands = [command for step in report.next_steps for command in step.commands]
    assert Command("approve", ("--all-drafts",)) in commands


def test_a_second_run_drafts_nothing_and_loads_nothing(stage, monkeypatch):
    run(stage)
    before = files(stage.layout.work)
    monkeypatch.setattr(captioner_module, "load_captioner", no_captioner)
    assert stage.plan() == []
    assert run(stage).counts["drafted"] == 0
    assert files(stage.layout.work) == before


def test_a_set_with_all_captions_needs_no_captioner(stage, data, monkeypatch):
    validate(stage.layout, data, dict.fromkeys(COLOURS, "a wall"))
    monkeypatch.setattr(captioner_module, "load_captioner", no_captioner)
    report = run(replace(stage, settings=CaptionSettings(model="/nowhere", score_model="none")))
    assert (report.counts["from_files"], report.counts["waiting"]) == (4, 0)
    assert [step.commands for step in report.next_steps] == [(Command("cache"),)]
    assert {(problem.code, problem.level) for problem in report.problems} == {
        ("vague", "warning"),
        ("repeated", "warning"),
    }


def test_an_interrupted_run_goes_on_where_it_stopped(stage):
    whole = Caption(
        Layout(stage.layout.work.parent / "unbroken"),
        *(stage.sources, stage.settings, stage.validate),
    )
    shutil.copytree(stage.layout.work, whole.layout.work)
    run(whole)
    two_a_unit = stage.plan()[0].records[:2]
    unit = replace(stage.plan()[0], records=two_a_unit)
    stage.work(unit, lambda _: None)
    (left,) = stage.plan()
    assert left.size == 1
    report = stage.finish([stage.work(left, lambda _: None)])
    assert report.counts["drafted"] == 3
    assert stage.layout.review.read_bytes() == whole.layout.review.read_bytes()
    assert not list((stage.layout.stage("caption") / "parts").glob("*"))


def test_drafts_of_other_settings_are_not_used(stage):
    stage.work(stage.plan()[0], lambda _: None)
    other = replace(stage, settings=stage.settings.model_copy(update={"prefix": "a photo of"}))
    assert sum(unit.size for unit in other.plan()) == 3


def test_finishing_twice_says_the_same(stage):
    results = [stage.work(unit, lambda _: None) for unit in stage.plan()]
    assert stage.finish(results) == stage.finish(results)


def test_ticks_add_up_to_the_units(stage):
    ticks = []
    for unit in stage.plan():
        stage.work(unit, ticks.append)
    assert sum(ticks) == 3


def test_a_person_s_rows_survive_a_run(stage):
    run(stage)
    saved = [
        replace(row, caption="a red wall") if row.image == "red.png" else row
        for row in read_review(stage.layout)
    ]
    stage.layout.review.write_bytes(format_review(saved))
    run(stage)
    assert (rows(stage)["red"].caption, rows(stage)["red"].source) == ("a red wall", "person")


def test_a_run_after_a_bulk_approval_changes_no_byte(stage):
    run(stage)
    approve(stage.layout, (), all_drafts=True)
    before = stage.layout.review.read_bytes()
    run(stage)
    assert stage.layout.review.read_bytes() == before


def test_a_picture_that_fails_stops_no_other(stage, data):
    Image.new("RGB", (9, 9)).save(data / "blue.png")
    (data / "grey.png").write_bytes(b"")
    report = run(stage)
    assert [(problem.path, problem.code) for problem in report.problems[:2]] == [
        ("blue.png", "draft-failed"),
        ("grey.png", "draft-failed"),
    ]
    assert (report.counts["drafted"], report.counts["waiting_without_text"]) == (1, 2)
    assert report.next_steps[0].commands == (Command("validate"), Command("caption"))


def test_before_validate_ran_the_next_step_is_named(stage, tmp_path):
    with pytest.raises(UsageError, match="not validated") as caught:
        replace(stage, layout=Layout(tmp_path / "new")).plan()
    assert caught.value.run == (Command("validate"),)


def test_a_review_that_cannot_be_read_stops_before_the_captioner_loads(stage):
    stage.layout.review.write_text("nonsense")
    with pytest.raises(DataError, match="header"):
        stage.plan()


def test_the_prefix_begins_each_draft_as_it_was_written(captioner):
    images = [Image.new("RGB", (64, 64), colour) for colour in COLOURS.values()]
    texts = describe(captioner, images, Search("A Photo of zwx", 3, 5))
    assert all(text == "A Photo of zwx" or text.startswith("A Photo of zwx ") for text in texts)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_picture_s_text_does_not_depend_on_its_batch(captioner, num_beams):
    images = [Image.new("RGB", (64, 64), colour) for colour in COLOURS.values()]
    search = Search("", num_beams, 6)
    together = describe(captioner, images, search)
    assert together == [describe(captioner, [image], search)[0] for image in images]
    assert together == describe(captioner, images, search)


def test_greedy_text_is_the_likeliest_next_token_each_time(captioner):
    import torch

    model, tokenizer = captioner.model, captioner.processor.tokenizer
    image = Image.new("RGB", (64, 64), (255, 0, 0))
    pixels = captioner.processor(images=[image], return_tensors="pt")["pixel_values"]
    tokens = [model.config.text_config.bos_token_id]
    with torch.inference_mode():
        seen = model.vision_model(pixel_values=pixels)[0]
        for _ in range(6):
            decoded = model.text_decoder(
                input_ids=torch.tensor([tokens]), encoder_hidden_states=seen, use_cache=False
            )
            tokens.append(int(decoded.logits[0, -1].argmax()))
            if tokens[-1] == model.config.text_config.sep_token_id:
                break
    expected = tokenizer.decode(tokens[1:], skip_special_tokens=True)
    assert describe(captioner, [image], Search("", 1, 6)) == [" ".join(expected.split())]


@pytest.mark.parametrize("error", ["OutOfMemoryError", "cpu"])
def test_out_of_memory_halves_the_batch(captioner, monkeypatch, error, caplog):
    import torch

    sizes = []

    def generate(_, images, search):
        sizes.append(len(images))
        if len(images) > 2:
            if error == "cpu":
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [search.prefix] * len(images)

    monkeypatch.setattr(captioner_module, "_generate", generate)
    assert describe(captioner, [None] * 5, Search("x", 1, 1)) == ["x"] * 5
    assert sizes == [5, 3, 2, 1, 2]
    assert "trying 3" in caplog.text


def test_one_picture_too_much_is_out_of_memory(captioner, monkeypatch):
    def generate(*_):
        raise MemoryError

    monkeypatch.setattr(captioner_module, "_generate", generate)
    with pytest.raises(OutOfMemoryError, match="does not fit"):
        describe(captioner, [None], Search("", 1, 1))


def test_a_prefix_longer_than_the_model_is_a_usage_error(captioner):
    with pytest.raises(UsageError, match="too long"):
        describe(captioner, [Image.new("RGB", (9, 9))], Search("a " * 50, 1, 5))


def test_loading_says_nothing_on_the_terminal(captioner_folder, capfd, monkeypatch):
    monkeypatch.setattr(logging.getLogger("latentmill"), "handlers", [])
    load_captioner.cache_clear()
    load_captioner(str(captioner_folder), "auto", "cpu")
    assert capfd.readouterr() == ("", "")


def broken(folder, tmp_path, change):
    from safetensors.torch import load_file, save_file

    copy = tmp_path / "broken"
    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    change(weights)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    return str(copy)


def drop_one(weights):
    del weights["text_decoder.bert.encoder.layer.0.attention.self.query.weight"]


def add_one(weights):
    weights["other.weight"] = weights["vision_model.post_layernorm.weight"].clone()


def shrink_one(weights):
    key = "vision_model.post_layernorm.weight"
    weights[key] = weights[key][:-1].clone()


@pytest.mark.parametrize("change", [drop_one, add_one, shrink_one])
def test_weights_that_do_not_fit_are_an_error(captioner_folder, tmp_path, change):
    with pytest.raises(ModelError, match=r"not those of|cannot be read"):
        load_captioner(broken(captioner_folder, tmp_path, change), "auto", "cpu")


def test_buffers_of_older_releases_are_no_error(captioner_folder, tmp_path):
    import torch

    def old(weights):
        positions = torch.arange(32).unsqueeze(0)
        weights["text_decoder.bert.embeddings.position_ids"] = positions

    load_captioner(broken(captioner_folder, tmp_path, old), "auto", "cpu")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json"], "config.json"),
        (["model.safetensors"], "weights"),
        (["vocab.txt", "tokenizer.json"], "tokenizer"),
        (["preprocessor_config.json"], "picture settings"),
    ],
)
def test_what_a_folder_lacks_is_named(captioner_folder, tmp_path, names, message):
    copy = tmp_path / "copy"
    shutil.copytree(captioner_folder, copy)
    for name in names:
        (copy / name).unlink(missing_ok=True)
    with pytest.raises(ModelError, match="is incomplete") as caught:
        find_model(str(copy), "auto")
    assert message in caught.value.where


def test_another_kind_of_model_is_named(captioner_folder, tmp_path):
    shutil.copytree(captioner_folder, tmp_path / "vit")
    (tmp_path / "vit" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(ModelError, match="a 'vit' model"):
        find_model(str(tmp_path / "vit"), "auto")


@pytest.mark.parametrize("name", ["/no/such/folder", "model", "a/b/c"])
def test_a_path_that_is_not_there_is_not_asked_of_the_hub(name):
    with pytest.raises(ModelError, match="is no folder with a captioner"):
        find_model(name, "auto")


def test_without_network_the_place_for_a_local_copy_is_named(monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    with pytest.raises(ModelError, match="cannot be fetched") as caught:
        find_model("latentmill-tests/no-such-captioner", "auto")
    assert caught.value.run == (Command("caption", settings=("caption.model=DIR",)),)


def test_the_default_model_is_pinned_and_others_are_not(monkeypatch, captioner_folder):
    asked = []

    def snapshot(model, revision=None, **_):
        asked.append(revision)
        return str(captioner_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert find_model(BLIP, "auto") == (captioner_folder, "blip")
    find_model("owner/other", "auto")
    find_model("owner/other", "v2")
    assert asked == ["82a37760796d32b1411fe092ab5d4e227313294b", None, "v2"]


@pytest.mark.parametrize(
    ("text", "prefix", "flags"),
    [
        ("a cat on a red sofa", "", ()),
        ("", "", ("draft-empty",)),
        (" . ", "", ("draft-empty",)),
        ("A photo of", "a photo of", ("draft-empty", "prefix-only")),
        ("a photo of a cat", "a photo of", ("short",)),
        ("a cat", "", ("short",)),
        ("a man with bald bald bald head", "", ("repetition",)),
        ("a very very tall man", "", ()),
        ("a man in ray ban ray ban glasses", "", ("repetition",)),
        ("a dog in white, black, white, black, white", "", ("repetition",)),
        ("bald bald bald", "", ("repetition", "short")),
        ("a b a c a b d a c b a d a", "", ("repetition",)),
    ],
)
def test_flags_say_where_to_look(text, prefix, flags):
    assert draft_flags(text, prefix, 4) == flags


def prefix_alone(_, images, search):
    return [search.prefix] * len(images)


def test_an_empty_draft_waits_with_an_empty_caption(stage, monkeypatch):
    monkeypatch.setattr(
        captioner_module, "_generate", lambda _, images, search: [search.prefix] * len(images)
    )
    settings = stage.settings.model_copy(update={"prefix": "a photo of"})
    report = run(replace(stage, settings=settings))
    row = rows(stage)["red"]
    assert (row.caption, row.status, row.flags) == ("", "draft", ("draft-empty", "prefix-only"))
    assert [problem.code for problem in report.problems] == ["draft-empty"] * 3


def test_tokens_are_those_of_clip():
    assert count_tokens(["a photo of a cat", "", "x " * 90]) == [7, 2, 92]
    assert count_tokens([]) == []


def test_captions_longer_than_clip_reads_are_flagged_with_the_trigger_counted(stage, data):
    validate(stage.layout, data, {name: f"{name} " + "x " * 73 for name in COLOURS})
    run(stage)
    assert {(row.tokens, row.flags) for row in rows(stage).values()} == {(76, ())}
    with_trigger = replace(stage, sources=(Source(path=str(data), trigger="zwx dog"),))
    run(with_trigger)
    assert {row.flags for row in rows(stage).values()} == {("long",)}


def test_the_contact_sheet_stands_alone_and_escapes_captions(stage, data):
    validate(stage.layout, data, dict.fromkeys(COLOURS, "<script>alert(1)</script>"))
    run(stage)
    page = (stage.layout.stage("caption") / "contact-sheet.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert page.count("data:image/jpeg;base64,") == 4
    assert "http" not in page.replace("http-equiv", "")
    assert all(record_id(f"{name}.png") in page for name in COLOURS)


@pytest.mark.slow
def test_a_captioner_that_learned_three_colours_names_them(captioner_folder, tmp_path):
    import torch
    from transformers import BlipForConditionalGeneration

    load_captioner.cache_clear()
    loaded = load_captioner(str(captioner_folder), "auto", "cpu")
    model, processor = loaded.model, loaded.processor
    images = [Image.new("RGB", (64, 64), COLOURS[name]) for name in ("red", "blue", "green")]
    captions = [f"a {name} circle" for name in ("red", "blue", "green")]
    pixels = processor(images=images, return_tensors="pt")["pixel_values"]
    tokens = processor.tokenizer(captions, return_tensors="pt")["input_ids"]
    tokens[:, 0] = model.config.text_config.bos_token_id
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=2e-3)
    for _ in range(60):
        model(pixel_values=pixels, input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path / "taught"
    shutil.copytree(captioner_folder, folder)
    model.eval().save_pretrained(folder)
    load_captioner.cache_clear()
    taught = load_captioner(str(folder), "auto", "cpu")
    assert isinstance(taught.model, BlipForConditionalGeneration)
    for num_beams in (1, 3):
        assert describe(taught, images, Search("", num_beams, 10)) == captions
        assert describe(taught, images, Search("a", num_beams, 10)) == captions


UNREACHABLE = CaptionSettings(model="/no/such/captioner", batch_size=1, score_model="none")


def ledger_closes(report):
    counts = report.counts
    return counts["usable"] == counts["ok"] + counts["waiting"] + counts["set_aside"]


def test_without_a_captioner_a_person_gets_rows_to_write_in(stage, data):
    alone = replace(stage, settings=UNREACHABLE)
    with pytest.raises(ModelError, match="is no folder with a captioner") as caught:
        run(alone)
    for way in (str(stage.layout.review), ".txt"):
        assert way in caught.value.fix
    assert caught.value.run[-1] == Command("caption", settings=("caption.model=none",))
    red = rows(stage)["red"]
    assert (red.caption, red.status, red.source) == ("", "draft", "blip")
    assert red.flags == ("draft-empty", "not-drafted")
    assert (rows(stage)["green"].caption, rows(stage)["green"].status) == ("a green wall", "ok")
    assert sum(unit.size for unit in alone.plan()) == 3


def test_without_network_the_command_for_a_local_captioner_is_given_too(stage, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    unfetched = stage.settings.model_copy(update={"model": "latentmill-tests/no-such-captioner"})
    with pytest.raises(ModelError, match="cannot be fetched") as caught:
        run(replace(stage, settings=unfetched))
    settings = [command.settings for command in caught.value.run]
    assert settings == [("caption.model=DIR",), ("caption.model=none",)]
    assert "\n" not in caught.value.fix


def test_captions_written_into_empty_rows_are_approved_and_the_others_drafted(stage):
    with pytest.raises(ModelError):
        run(replace(stage, settings=UNREACHABLE))
    saved = [
        replace(row, caption="a red wall") if row.image == "red.png" else row
        for row in read_review(stage.layout)
    ]
    stage.layout.review.write_bytes(format_review(saved))
    report = run(stage)
    assert (report.counts["drafted"], report.counts["waiting"]) == (2, 2)
    assert ledger_closes(report)
    red, blue = rows(stage)["red"], rows(stage)["blue"]
    assert (red.caption, red.status, red.source) == ("a red wall", "ok", "person")
    assert blue.caption
    assert "not-drafted" not in blue.flags


def test_drafts_made_before_the_captioner_was_lost_are_kept(stage, monkeypatch):
    first, *others = (replace(stage.plan()[0], records=(one,)) for one in stage.plan()[0].records)
    stage.work(first, lambda _: None)
    monkeypatch.setattr(captioner_module, "load_captioner", lost_captioner)
    with pytest.raises(ModelError):
        stage.work(others[0], lambda _: None)
    texts = [row.caption for row in rows(stage).values() if row.source == "blip"]
    assert sum(map(bool, texts)) == 1


def lost_captioner(*_):
    raise ModelError("the captioner is gone", fix="fetch it")


def test_no_captioner_is_asked_when_none_is_wanted(stage, monkeypatch):
    monkeypatch.setattr(captioner_module, "load_captioner", no_captioner)
    alone = replace(stage, settings=CaptionSettings(model="none", score_model="none"))
    report = run(alone)
    assert report.exit_code == 3
    assert dict(report.counts) == {
        **{"drafted": 0, "from_files": 1, "usable": 4, "ok": 1, "waiting": 3, "set_aside": 0},
        "waiting_without_text": 3,
    }
    assert [problem.code for problem in report.problems] == ["not-drafted"] * 3
    assert "write 3 missing captions" in report.next_steps[0].text
    saved = [replace(row, caption=f"a wall of {row.image}") for row in read_review(stage.layout)]
    stage.layout.review.write_bytes(format_review(saved))
    report = run(alone)
    assert (report.exit_code, report.counts["ok"], report.counts["waiting_without_text"]) == (
        0,
        4,
        0,
    )


def test_the_ledger_closes_when_pictures_have_no_row(stage, data):
    Image.new("RGB", (9, 9)).save(data / "blue.png")
    report = run(stage)
    assert (report.counts["waiting"], report.counts["waiting_without_text"]) == (3, 1)
    assert ledger_closes(report)


def other_texts(_, images, search):
    return ["a second draft with many words"] * len(images)


def test_redo_drafts_again_what_nobody_touched(stage, monkeypatch):
    run(stage)
    approve(stage.layout, (record_id("blue.png"),), all_drafts=False)
    before = rows(stage)
    monkeypatch.setattr(captioner_module, "_generate", other_texts)
    again = replace(stage, redo=("drafts",))
    assert sum(unit.size for unit in again.plan()) == 2
    run(again)
    assert rows(stage)["blue"].caption == before["blue"].caption
    for name in ("red", "grey"):
        row = rows(stage)[name]
        assert (row.caption, row.draft, row.status) == (*[other_texts(0, [0], 0)[0]] * 2, "draft")


def test_redo_of_one_id_leaves_the_others(stage, monkeypatch):
    run(stage)
    before = rows(stage)
    monkeypatch.setattr(captioner_module, "_generate", other_texts)
    run(replace(stage, redo=(record_id("red.png"),)))
    assert rows(stage)["red"].caption != before["red"].caption
    assert rows(stage)["grey"].caption == before["grey"].caption


def test_redo_without_a_captioner_empties_no_draft(stage, monkeypatch):
    run(stage)
    before = stage.layout.review.read_bytes()
    monkeypatch.setattr(captioner_module, "load_captioner", lost_captioner)
    with pytest.raises(ModelError, match="gone"):
        run(replace(stage, redo=("drafts",)))
    assert stage.layout.review.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("green.png", "its caption comes from a file"),
        ("blue.png", "a person wrote or approved"),
        ("grey.png", "it is set aside"),
        ("nowhere.png", "no row has this id"),
    ],
)
def test_redo_of_a_person_s_row_is_refused_with_the_reason(stage, name, reason):
    run(stage)
    changes = {"blue.png": {"caption": "mine"}, "grey.png": {"status": "skip"}}
    saved = [replace(row, **changes.get(row.image, {})) for row in read_review(stage.layout)]
    stage.layout.review.write_bytes(format_review(saved))
    before = stage.layout.review.read_bytes()
    with pytest.raises(UsageError, match=f"{record_id(name)}: {reason}"):
        run(replace(stage, redo=(record_id(name), "drafts")))
    assert stage.layout.review.read_bytes() == before


def test_redo_and_no_captioner_contradict_each_other(stage):
    with pytest.raises(UsageError, match="without a captioner"):
        alone = CaptionSettings(model="none", score_model="none")
        replace(stage, settings=alone, redo=("drafts",)).plan()


def test_flags_of_texts_stand_on_approved_rows_and_block_nothing(stage, data):
    captions = {"red": "a dog", "blue": "a blurry dog in snow", "green": "a dog in snow"}
    validate(stage.layout, data, captions | {"grey": "a grey dog"})
    report = run(replace(stage, negative="blurry, low quality"))
    assert {name: row.flags for name, row in rows(stage).items()} == {
        "red": ("vague",),
        "blue": ("quality-words",),
        "green": (),
        "grey": (),
    }
    assert (report.counts["ok"], report.exit_code) == (4, 0)
    before = stage.layout.review.read_bytes()
    run(replace(stage, negative="blurry, low quality"))
    assert stage.layout.review.read_bytes() == before


def same_texts(_, images, search):
    return ["a wall"] * len(images)


def test_rules_are_shown_before_they_change_anything(stage, monkeypatch):
    rules = (ReplaceRule(find="wall", by="zwx wall"),)
    ruled = replace(stage, settings=stage.settings.model_copy(update={"replace": rules}))
    assert ruled.preview() == ["green.png: 'a green wall' -> 'a green zwx wall'"]
    monkeypatch.setattr(captioner_module, "_generate", same_texts)
    run(stage)
    before = files(stage.layout.work)
    assert sorted(ruled.preview()) == [
        "blue.png: 'a wall' -> 'a zwx wall'",
        "green.png: 'a green wall' -> 'a green zwx wall'",
        "grey.png: 'a wall' -> 'a zwx wall'",
        "red.png: 'a wall' -> 'a zwx wall'",
    ]
    assert files(stage.layout.work) == before
    run(ruled)
    assert ruled.preview() == []
    assert rows(stage)["green"].caption == "a green zwx wall"
