"""The configuration: files, flags, `--set`, and what is said about a wrong one."""

import itertools
from pathlib import Path

import pytest

from latentmill.datasets.errors import UsageError
from latentmill.pipeline.config import Request, load_config
from latentmill.pipeline.config_text import config_text


def _load(*assignments: str, **flags: str) -> object:
    return load_config(Request(assignments=assignments, **flags))


def _file(folder: Path, text: str) -> str:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults_make_the_documented_lora() -> None:
    train = load_config(Request()).train
    assert (train.rank, train.alpha, train.learning_rate) == (8, 8.0, 1e-4)
    assert (train.batch_size, train.gradient_accumulation) == (1, 4)
    assert train.scheduler == "cosine"
    assert train.gradient_checkpointing


def test_set_wins_over_the_file_and_flags_over_the_file(tmp_path: Path) -> None:
    name = _file(tmp_path, 'work = "a"\n[train]\nrank = 4\nalpha = 2\n[model]\nid = "m"\n')
    config = load_config(
        Request(config=name, work="b", model="n", data="d", assignments=("train.rank=16",))
    )
    assert (config.train.rank, config.train.alpha) == (16, 2.0)
    assert (config.work, config.model.id, config.data[0].path) == ("b", "n", "d")


@pytest.mark.parametrize(
    ("assignment", "section", "name", "value"),
    [
        ("train.rank=16", "train", "rank", 16),
        ("train.learning_rate=5e-5", "train", "learning_rate", 5e-5),
        ("train.name=2024-01-31", "train", "name", "2024-01-31"),
        ("train.name=007", "train", "name", "007"),
        ("caption.prefix=a photo of", "caption", "prefix", "a photo of"),
        ("caption.accept_drafts=true", "caption", "accept_drafts", True),
        ("train.targets=attention", "train", "targets", "attention"),
        ('train.targets=["to_q", "to_k"]', "train", "targets", ("to_q", "to_k")),
        ('sample.prompts=["a, b", "c"]', "sample", "prompts", ("a, b", "c")),
        ("validate.max_rejects=3", "validation", "max_rejects", 3),
    ],
)
def test_set_takes_values_as_people_write_them(
    assignment: str, section: str, name: str, value: object
) -> None:
    assert getattr(getattr(_load(assignment), section), name) == value


def test_a_source_setting_goes_to_all_sources_or_to_one(tmp_path: Path) -> None:
    name = _file(tmp_path, '[[data]]\npath = "a"\n[[data]]\npath = "b"\n')
    config = load_config(Request(config=name, assignments=("data.trigger=zwx", "data.1.repeats=5")))
    assert [(s.path, s.trigger, s.repeats) for s in config.data] == [
        ("a", "zwx", 1),
        ("b", "zwx", 5),
    ]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("train.rnk=3", "did you mean train.rank?"),
        ("trian.rank=3", "did you mean train?"),
        ("train.rank=many", "train.rank: Input should be a valid integer"),
        ("train.rank=0", "train.rank"),
        ("train.scheduler=cosin", "train.scheduler"),
        ("train.rank", "is not an assignment"),
        ("data.trigger=x", "names no data source"),
        ("work.x.y=1", "work"),
        ("bucket.min=700", "bucket.min <= bucket.area <= bucket.max does not hold"),
    ],
)
def test_a_wrong_setting_is_named_with_the_nearest_right_one(assignment: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        _load(assignment)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_wrong_settings_are_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        _load("train.rnk=3", "cache.shard_sise=3")
    assert "train.rank?" in caught.value.what
    assert "cache.shard_size?" in caught.value.what


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[train\nrank = 3", "is not TOML"),
        ("[train]\nname = 'café'".encode("cp1252"), "is not UTF-8"),
    ],
)
def test_a_broken_file_is_a_usage_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        load_config(Request(config=str(path)))


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\nrank = 3\n")
    assert load_config(Request(config=str(path))).train.rank == 3


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(Request(config=str(tmp_path / "none.toml")))


def test_the_printed_configuration_loads_to_the_same(tmp_path: Path) -> None:
    config = _load(
        'sample.prompts=["a \\"b\\"", "红"]', "data.trigger=z\\x", data='pic "1" \\ 写真', work="w"
    )
    again = load_config(Request(config=_file(tmp_path, config_text(config))))
    assert again == config


def test_the_printed_default_configuration_loads_to_the_same(tmp_path: Path) -> None:
    text = config_text(load_config(Request()))
    assert load_config(Request(config=_file(tmp_path, text))) == load_config(Request())


def test_every_setting_has_a_help_text() -> None:
    lines = config_text(load_config(Request(data="x"))).splitlines()
    for before, line in itertools.pairwise(lines):
        if " = " in line and not line.startswith("#"):
            assert before.startswith("# "), line


def test_the_work_folder_is_named_after_the_data() -> None:
    assert load_config(Request(data="/a/my dog/")).layout().work == Path("work/my dog")


def test_no_data_is_said_with_the_way_on() -> None:
    with pytest.raises(UsageError, match="no folder of pictures"):
        load_config(Request()).layout()


@pytest.mark.parametrize("setting", ["work", "cache.dir"])
def test_nothing_of_ours_may_be_the_data_folder(tmp_path: Path, setting: str) -> None:
    config = load_config(
        Request(data=str(tmp_path), assignments=(f"work={tmp_path}/w", f"{setting}={tmp_path}"))
    )
    with pytest.raises(UsageError, match="is the data folder, which is read only"):
        config.layout()


def test_replace_rules_are_printed_and_read_back(tmp_path: Path) -> None:
    rules = '[{find = "a \\"man\\"", by = "zwx"}, {find = "a(b)", by = "\\\\1", regex = true}]'
    config = load_config(Request(data="x", assignments=(f"caption.replace={rules}",)))
    assert [rule.find for rule in config.caption.replace] == ['a "man"', "a(b)"]
    (tmp_path / "run.toml").write_text(config_text(config), encoding="utf-8")
    assert load_config(Request(config=str(tmp_path / "run.toml"))).caption == config.caption


def test_a_replace_rule_that_is_no_pattern_is_named() -> None:
    with pytest.raises(UsageError, match=r"caption\.replace\.0: .*no regular expression"):
        load_config(
            Request(data="x", assignments=('caption.replace=[{find = "(", regex = true}]',))
        )
