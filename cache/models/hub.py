"""Turns a Hugging Face hub id into a local folder that holds one part of the model."""

from pathlib import Path

from latentmill.cache.disk import FULL
from latentmill.cache.models import model_folder
from latentmill.cache.models.model_folder import Part
from latentmill.datasets.errors import DiskFullError, LatentmillError, ModelError

# Half-precision copies and moving-average weights come only when the plain ones are missing.
_VARIANTS = ("*.fp16.*", "*.bf16.*", "*.non_ema.*", "*.ema.*")


def fetch_part(model_id: str, revision: str, part: Part) -> Path:
    """Return the snapshot's folder for `part`; what the hub cache already holds is not asked for.

    Raises ModelError that tells an unreachable hub from a missing, gated or unknown model.
    """
    for skipped, local_only in (((), True), (_VARIANTS, False), ((), False)):
        folder = _snapshot(model_id, revision, part, skipped, local_only)
        if folder is not None and model_folder.is_complete(folder / part, part):
            return folder / part
    raise ModelError(
        f"{model_id} on the Hugging Face hub has no usable {part}",
        where=f"{model_id} revision {revision or 'main'}",
        expected=f"a folder {part}/ with a configuration and .safetensors weights",
        fix="name another model, or another --set model.revision",
    )


def _snapshot(
    model_id: str, revision: str, part: Part, skipped: tuple[str, ...], local_only: bool
) -> Path | None:
    import huggingface_hub
    from huggingface_hub import errors

    pickles = [f"*{suffix}" for suffix in model_folder.PICKLES]
    try:
        folder = huggingface_hub.snapshot_download(
            model_id,
            revision=revision or None,
            allow_patterns=[f"{part}/*", "model_index.json"],
            ignore_patterns=[*pickles, "*.msgpack", "*.onnx*", *skipped],
            local_files_only=local_only,
        )
    except (OSError, ValueError, RuntimeError, _http_error()) as error:
        if local_only and isinstance(error, errors.LocalEntryNotFoundError):
            return None
        raise _explained(model_id, revision, error) from error
    return Path(folder)


def _http_error() -> type[Exception]:
    """Return what the hub's HTTP client raises: that of requests, httpx or a successor."""
    from huggingface_hub import errors

    # Imported there from whichever client is installed, so not one of its declared names.
    kind: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    return kind


def _explained(model_id: str, revision: str, error: Exception) -> LatentmillError:
    """Say which of the hub's many failures this is, and the one thing that helps."""
    from huggingface_hub import errors

    causes = _causes(error)
    where = f"{model_id}, revision {revision or 'main'}"
    if _any(causes, errors.HFValidationError):
        what = f"{model_id!r} is neither a file or folder nor a possible hub id"
        fix = "give a folder in diffusers layout, a .safetensors file or OWNER/NAME with --model"
    elif _any(causes, errors.GatedRepoError):
        what = f"{model_id} is gated: its licence must be accepted on the hub first"
        fix = f"accept it at https://huggingface.co/{model_id}, then run `hf auth login`"
    elif _any(causes, errors.RepositoryNotFoundError):
        what = f"there is no folder {model_id!r}, and no such model on the hub (or it is private)"
        fix = "correct the id or the path; for a private model run `hf auth login`"
    elif _any(causes, errors.RevisionNotFoundError):
        what = f"{model_id} has no revision {revision!r}"
        fix = "correct model.revision, or leave it empty for main"
    elif any(getattr(cause, "errno", None) in FULL for cause in causes):
        what = f"no room to download {model_id}"
        fix = "free some space, or let the environment variable HF_HOME name a larger disk"
        return DiskFullError(what, where=where, fix=fix)
    else:
        what = f"{model_id} is not on this machine, and the Hugging Face hub cannot be reached"
        where = f"{where}: {_one_line(causes[-1])}"
        fix = (
            f"download it elsewhere (`hf download {model_id} --local-dir DIR`), "
            "copy the folder here and give it with --model DIR"
        )
    return ModelError(what, where=where, fix=fix)


def _causes(error: BaseException) -> list[BaseException]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return causes


def _any(causes: list[BaseException], kind: type[Exception]) -> bool:
    return any(isinstance(cause, kind) for cause in causes)


def _one_line(error: BaseException) -> str:
    return " ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
