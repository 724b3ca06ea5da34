"""What latentmill itself reads from the configurations of a model's parts, checked before use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from latentmill.cache.models.model_folder import Part, unreadable

_READ = ConfigDict(frozen=True, extra="ignore")
_SHOWN_CHARACTERS: Final = 40
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class VaeConfig(BaseModel):
    """The VAE's sizes and the scale of its latents; defaults are diffusers' own."""

    model_config = _READ

    latent_channels: PositiveInt = 4
    block_out_channels: tuple[PositiveInt, ...] = Field((128, 256, 512, 512), min_length=1)
    scaling_factor: Annotated[_Finite, Field(gt=0)] = 0.18215
    shift_factor: _Finite | None = None
    force_upcast: bool = False

    @property
    def factor(self) -> int:
        """How many times smaller than the picture its latent is, along each side."""
        return int(2 ** (len(self.block_out_channels) - 1))


class TextEncoderConfig(BaseModel):
    """The shape of an embedding."""

    model_config = _READ

    max_position_embeddings: PositiveInt = 77
    hidden_size: PositiveInt = 768


class SchedulerConfig(BaseModel):
    """The noise schedule; `trained_betas` replaces the other numbers where it is given."""

    model_config = _READ

    num_train_timesteps: Annotated[int, Field(ge=2, le=100_000)] = 1000
    beta_start: Annotated[float, Field(gt=0, lt=1)] = 0.0001
    beta_end: Annotated[float, Field(gt=0, lt=1)] = 0.02
    trained_betas: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | None = None
    prediction_type: Literal["epsilon", "v_prediction"] = "epsilon"


ConfigT = TypeVar("ConfigT", VaeConfig, TextEncoderConfig, SchedulerConfig)
PART_OF: Final[Mapping[type[BaseModel], Part]] = {
    VaeConfig: "vae",
    TextEncoderConfig: "text_encoder",
    SchedulerConfig: "scheduler",
}


def parse_config(kind: type[ConfigT], values: Mapping[str, Any], path: Path) -> ConfigT:
    """Check what `path` holds; ModelError names the file, the key and its value."""
    try:
        return kind.model_validate({name: one for name, one in values.items() if one is not None})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        reason = f"{key} is {_shown(first['input'])}: {first['msg'].lower()}"
        raise unreadable(path, ValueError(reason)) from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
