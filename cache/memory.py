"""Tell a failed allocation, on the card or on the host, from any other error."""

import sys
from typing import Final

# The CPU's allocator, Metal and cuBLAS have no exception of their own.
_WORDS: Final = (
    "allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, by the error's class or, of a RuntimeError, by its words."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, torch.OutOfMemoryError)
    ):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)
