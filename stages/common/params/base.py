"""What all sections of params.yaml share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from stages.common.errors import StageError

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Function = Annotated[str, Field(pattern=r"^([\w.]+|[^:]+\.py):\w+$")]  # module:function or path/to/file.py:function


class ParamsError(StageError):
    """A message that names the file, the key and what to do."""


class Section(BaseModel):
    """Unknown keys are errors; infinities and NaN are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
