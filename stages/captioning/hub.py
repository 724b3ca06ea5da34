"""A model's name on the Hugging Face hub to its folder on this machine."""

from collections.abc import Sequence
from pathlib import Path

from latentmill.datasets.errors import ModelError
from latentmill.datasets.next_steps import Command


def snapshot(
    hub_id: str,
    revision: str | None,
    patterns: Sequence[str],
    is_local: bool,
    what: str = "",
    run: tuple[Command, ...] = (),
) -> Path | None:
    """The hub's folder with these files; None when only the disk was asked and lacks them.

    Raises ModelError about `what`, with the commands `run` as a way on, when it cannot be fetched.
    """
    import huggingface_hub

    try:
        if not is_local:  # One question without retries: half a minute less without a network.
            huggingface_hub.HfApi().model_info(hub_id, revision=revision, timeout=10)
        return Path(
            huggingface_hub.snapshot_download(
                hub_id,
                revision=revision,
                allow_patterns=list(patterns),
                local_files_only=is_local,
            )
        )
    except Exception as error:  # The HTTP library's own classes change by version.
        if is_local:
            return None
        raise _not_fetched(error, hub_id, revision, what, run) from error


def _not_fetched(
    error: Exception, hub_id: str, revision: str | None, what: str, run: tuple[Command, ...]
) -> ModelError:
    from huggingface_hub import errors

    refused = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
    known = isinstance(error, refused) or isinstance(error.__cause__, refused)
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    named = what.replace("the ", "no ", 1)
    return ModelError(
        f"the hub has {named} (revision {revision or 'main'}), or asks for a login"
        if known
        else f"{what} cannot be fetched: {reason}",
        where="https://huggingface.co (Hugging Face hub)",
        expected="a network, the model in the hub's cache on this machine, or a local folder",
        fix=f"on a machine with network run `hf download {hub_id} --local-dir DIR`, copy DIR "
        "here and name it",
        run=run,
    )
